# A schedule that is switched off: nothing runs.
# Ends: waits
job "off-schedule" {
  type = "batch"
  periodic {
    cron    = "0 0 1 1 *"
    enabled = false
  }
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
