# Another root than the host's, in a folder that the node does not allow.
# Ends: failed
job "rooted" {
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
        rootfs  = "/srv/none"
      }
    }
  }
}
