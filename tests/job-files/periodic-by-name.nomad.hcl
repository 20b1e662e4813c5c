# A schedule by its name.
# Ends: waits
job "yearly" {
  type = "batch"
  periodic {
    cron      = "@yearly"
    time_zone = "UTC"
    enabled   = true
  }
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
