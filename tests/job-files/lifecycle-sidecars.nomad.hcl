# Sidecars that begin before and after the main task, and end with it.
# Ends: complete
# Prints: early
# Prints: late
job "beside" {
  type = "batch"
  group "g" {
    task "early" {
      driver       = "raw_exec"
      kill_timeout = "1s"
      lifecycle {
        hook    = "prestart"
        sidecar = true
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "echo early; exec sleep 1000"]
      }
    }
    task "late" {
      driver       = "raw_exec"
      kill_timeout = "1s"
      lifecycle {
        hook    = "poststart"
        sidecar = true
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "echo late; exec sleep 1000"]
      }
    }
    task "main" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["1"]
      }
    }
  }
}
