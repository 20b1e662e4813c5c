# What a service says for all its checks, and one check that says it otherwise.
# Ends: running
job "common-rules" {
  group "g" {
    update {
      health_check     = "task_states"
      min_healthy_time = "0s"
    }
    network {
      port "http" {}
    }
    service {
      name      = "common-rules"
      port      = "http"
      on_update = "ignore"
      check_restart {
        limit = 5
        grace = "90s"
      }
      check {
        type     = "tcp"
        interval = "30s"
        timeout  = "2s"
      }
      check {
        name      = "other"
        type      = "tcp"
        interval  = "30s"
        timeout   = "2s"
        on_update = "require_healthy"
        check_restart {
          limit = 2
          grace = "5s"
        }
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
