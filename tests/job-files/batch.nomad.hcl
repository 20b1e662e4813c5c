# Ends by itself.
# Ends: complete
job "once" {
  type = "batch"
  group "g" {
    count = 2
    reschedule {
      attempts       = 2
      interval       = "24h"
      delay          = "5s"
      delay_function = "constant"
      unlimited      = false
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
