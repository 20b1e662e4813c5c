# A task before the main one fails: the main one never begins.
# Ends: failed
# Prints: not ready
job "unprepared" {
  type = "batch"
  group "g" {
    restart {
      attempts = 0
      mode     = "fail"
    }
    reschedule {
      attempts  = 0
      unlimited = false
    }
    task "before" {
      driver = "raw_exec"
      lifecycle { hook = "prestart" }
      config {
        command = "/bin/sh"
        args    = ["-c", "echo not ready; exit 1"]
      }
    }
    task "main" {
      driver = "raw_exec"
      config { command = "/bin/true" }
    }
  }
}
