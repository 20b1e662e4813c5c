# Restarts, reschedules, moves and disconnections.
job "policies" {
  group "g" {
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
    shutdown_delay        = "3s"
    ephemeral_disk {
      size   = 500
      sticky = true
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      restart {
        attempts = 1
        mode     = "fail"
      }
    }
  }
}
