# A task that ends itself by a signal has failed.
# Ends: failed
job "signalled" {
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
        args    = ["-c", "kill -9 $$"]
      }
    }
  }
}
