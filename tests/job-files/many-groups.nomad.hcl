# Several groups and tasks; one group has no allocation.
# Ends: complete
# Prints: b x
# Prints: b y
job "crowd" {
  type = "batch"
  group "a" {
    count = 0
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
  group "b" {
    stop_after_client_disconnect = "90s"
    task "x" {
      driver = "exec"
      config {
        command = "/bin/echo"
        args    = ["${NOMAD_GROUP_NAME} ${NOMAD_TASK_NAME}"]
      }
    }
    task "y" {
      driver = "exec"
      config {
        command = "/bin/echo"
        args    = ["${NOMAD_GROUP_NAME} ${NOMAD_TASK_NAME}"]
      }
    }
  }
}
