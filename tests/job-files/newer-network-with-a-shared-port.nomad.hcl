# A fixed port that other allocations may have on the same node.
# Ends: running
job "sharing-a-port" {
  group "g" {
    update { min_healthy_time = "0s" }
    network {
      port "dns" {
        static           = 21004
        ignore_collision = true
      }
    }
    task "t" {
      driver       = "raw_exec"
      kill_timeout = "1s"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
    }
  }
}
