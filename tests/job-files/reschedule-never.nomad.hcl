# A batch job that fails, and is not tried again.
# Ends: failed
# Prints: it cannot work
job "hopeless" {
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
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo it cannot work >&2; exit 3"]
      }
    }
  }
}
