# No roll-out: all allocations are replaced at once.
# Ends: running
job "at-once" {
  group "g" {
    count = 2
    update {
      max_parallel     = 0
      min_healthy_time = "0s"
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
