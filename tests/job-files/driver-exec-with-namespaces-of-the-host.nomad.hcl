# The host's list of processes, which the node shares with no task.
# Ends: failed
job "nosy" {
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
        pidMode = "host"
        ipcMode = "host"
      }
    }
  }
}
