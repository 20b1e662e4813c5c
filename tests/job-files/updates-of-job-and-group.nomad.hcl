# A roll-out whose group says some of it otherwise.
job "rolls" {
  update {
    max_parallel      = 2
    health_check      = "task_states"
    min_healthy_time  = "5s"
    healthy_deadline  = "3m"
    progress_deadline = "6m"
    auto_revert       = true
  }
  group "one" {
    count = 4
    update {
      canary       = 1
      auto_promote = true
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
  group "other" {
    update { min_healthy_time = "0s" }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
