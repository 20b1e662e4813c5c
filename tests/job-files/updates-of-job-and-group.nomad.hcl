# A roll-out whose group says some of it otherwise.
# Ends: running
job "rolls" {
  update {
    max_parallel      = 2
    health_check      = "task_states"
    min_healthy_time  = "10ms"
    healthy_deadline  = "3m"
    progress_deadline = "6m"
    auto_revert       = true
  }
  group "one" {
    count = 2
    update {
      canary       = 1
      auto_promote = true
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
  group "other" {
    update { min_healthy_time = "0s" }
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
