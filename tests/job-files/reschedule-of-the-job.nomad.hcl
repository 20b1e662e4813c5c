# Another allocation for one that failed: the job says how, and one group says it otherwise.
# Ends: complete
job "again" {
  type = "batch"
  reschedule {
    attempts       = 3
    interval       = "1h"
    delay          = "10s"
    delay_function = "exponential"
    max_delay      = "2m"
    unlimited      = false
  }
  group "one" {
    task "t" {
      driver = "raw_exec"
      config { command = "/bin/true" }
    }
  }
  group "other" {
    reschedule {
      attempts       = 1
      interval       = "30s"
      delay          = "5s"
      delay_function = "constant"
      unlimited      = false
    }
    task "t" {
      driver = "raw_exec"
      config { command = "/bin/true" }
    }
  }
}
