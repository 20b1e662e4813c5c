# How allocations of all groups move from a node that is emptied, and of one group otherwise.
# Ends: running
job "moving" {
  migrate {
    max_parallel     = 1
    health_check     = "task_states"
    min_healthy_time = "1s"
    healthy_deadline = "1m"
  }
  update { min_healthy_time = "0s" }
  group "one" {
    task "t" {
      driver       = "raw_exec"
      kill_timeout = "1s"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
    }
  }
  group "other" {
    migrate { max_parallel = 3 }
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
