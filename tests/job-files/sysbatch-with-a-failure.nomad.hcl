# Once on every node, and it fails there.
# Ends: failed
# Prints: no luck
job "everywhere-failed" {
  type = "sysbatch"
  group "g" {
    restart {
      attempts = 0
      mode     = "fail"
    }
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo no luck; exit 1"]
      }
    }
  }
}
