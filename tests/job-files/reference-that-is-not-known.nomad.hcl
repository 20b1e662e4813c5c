# A reference to something that neither the node nor the task has.
# Ends: failed
job "misspelled" {
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
        command = "/bin/echo"
        args    = ["${attr.kernel.nmae}"]
      }
    }
  }
}
