# Each night.
job "nightly" {
  type = "batch"
  periodic {
    cron             = "15 3 * * *"
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
