# Several times, on a node's clock in another place, and runs that may overlap.
# Ends: waits
job "several-times" {
  type = "batch"
  periodic {
    crons            = ["0 0 1 1 *", "30 12 31 12 *"]
    time_zone        = "America/New_York"
    prohibit_overlap = false
  }
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
