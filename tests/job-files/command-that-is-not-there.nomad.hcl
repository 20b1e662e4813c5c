# A program that the node does not have.
# Ends: failed
job "without-a-program" {
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
      config { command = "/opt/none/program" }
    }
  }
}
