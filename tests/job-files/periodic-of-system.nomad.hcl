# A schedule of a job that runs once on every node.
# Ends: waits
job "yearly-everywhere" {
  type = "sysbatch"
  periodic {
    cron             = "0 0 1 1 *"
    prohibit_overlap = true
  }
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
