# Restarts, reschedules, moves and disconnections.
# Ends: running
job "policies" {
  group "g" {
    update { min_healthy_time = "0s" }
    restart {
      attempts = 3
      interval = "5m"
      delay    = "10s"
      mode     = "delay"
    }
    reschedule {
      delay          = "30s"
      delay_function = "fibonacci"
      max_delay      = "10m"
      unlimited      = true
    }
    migrate {
      max_parallel     = 2
      health_check     = "checks"
      min_healthy_time = "15s"
      healthy_deadline = "4m"
    }
    max_client_disconnect = "1h"
    shutdown_delay        = "1s"
    ephemeral_disk {
      size   = 500
      sticky = true
    }
    task "t" {
      driver       = "exec"
      kill_timeout = "1s"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
      restart {
        attempts = 1
        mode     = "fail"
      }
    }
  }
}
