# Health that a person tells: an allocation runs, and its roll-out waits.
# Ends: pending: its tasks run and are not healthy yet
job "by-hand" {
  group "g" {
    update {
      max_parallel     = 1
      health_check     = "manual"
      min_healthy_time = "0s"
      healthy_deadline = "5m"
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
