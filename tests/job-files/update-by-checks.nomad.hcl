# A roll-out that waits for a check: a script that asks the task for a file of its own.
# Ends: running
# Prints: up
job "checked" {
  update {
    health_check      = "checks"
    min_healthy_time  = "10ms"
    healthy_deadline  = "1m"
    progress_deadline = "2m"
    auto_revert       = false
  }
  group "g" {
    network {
      port "http" {}
    }
    service {
      name = "checked-web"
      port = "http"
      task = "t"
      check {
        name     = "file"
        type     = "script"
        command  = "/bin/sh"
        args     = ["-c", "test -e $NOMAD_TASK_DIR/up"]
        task     = "t"
        interval = "1s"
        timeout  = "1s"
      }
    }
    task "t" {
      driver       = "raw_exec"
      kill_timeout = "1s"
      config {
        command = "/bin/sh"
        args    = ["-c", "touch $NOMAD_TASK_DIR/up; echo up; exec sleep 1000"]
      }
    }
  }
}
