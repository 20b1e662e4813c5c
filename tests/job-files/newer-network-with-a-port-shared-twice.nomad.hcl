# A fixed port that two allocations have on one node.
# Ends: running
job "sharing-twice" {
  group "g" {
    count = 2
    update { min_healthy_time = "0s" }
    network {
      port "dns" {
        static           = 21020
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
