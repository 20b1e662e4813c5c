# A service that is tried again as long as it fails, after pauses that grow.
# Ends: running
job "again-and-again" {
  group "g" {
    update { min_healthy_time = "0s" }
    reschedule {
      delay          = "5s"
      delay_function = "fibonacci"
      max_delay      = "1h"
      unlimited      = true
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
