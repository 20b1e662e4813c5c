# Each year, in the time of a place, and not while the last run goes on.
# Ends: waits
job "nightly" {
  type = "batch"
  periodic {
    cron             = "15 3 1 1 *"
    time_zone        = "Europe/Berlin"
    prohibit_overlap = true
  }
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
