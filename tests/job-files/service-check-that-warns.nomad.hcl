# A script that warns by exit code 1: the deployment takes it for good, and nothing is restarted.
# Ends: running
job "warned" {
  group "g" {
    update {
      health_check     = "checks"
      min_healthy_time = "10ms"
    }
    network {
      port "http" {}
    }
    service {
      name = "warned"
      port = "http"
      task = "t"
      check {
        name      = "load"
        type      = "script"
        command   = "/bin/sh"
        args      = ["-c", "echo high; exit 1"]
        interval  = "1s"
        timeout   = "1s"
        on_update = "ignore_warnings"
        check_restart {
          limit           = 3
          grace           = "1s"
          ignore_warnings = true
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
