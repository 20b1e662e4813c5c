# Refused: the old and the new name of a schedule side by side.
# Ends: refused: 6
job "doubly-timed" {
  type = "batch"
  periodic {
    cron  = "0 0 1 1 *"
    crons = ["0 0 1 1 *"]
  }
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
