# On every node, as long as it is there.
# Ends: running
job "everywhere" {
  type = "system"
  group "g" {
    update {
      max_parallel     = 3
      min_healthy_time = "10ms"
    }
    task "t" {
      driver       = "exec"
      kill_timeout = "1s"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
    }
  }
}
