# A user that the node does not have.
# Ends: failed
job "as-a-stranger" {
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
      user   = "no-such-user"
      config { command = "/bin/true" }
    }
  }
}
