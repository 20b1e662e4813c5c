# A capability that the node gives to no task.
# Ends: failed
job "capable" {
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
      driver = "exec"
      config {
        command = "/bin/true"
        capAdd  = ["sys_admin"]
      }
    }
  }
}
