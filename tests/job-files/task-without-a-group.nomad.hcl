# A task beside no group has one of its own name.
# Ends: complete
# Prints: alone alone
job "alone" {
  type = "batch"
  task "alone" {
    driver = "raw_exec"
    config {
      command = "/bin/echo"
      args    = ["${NOMAD_GROUP_NAME} ${NOMAD_TASK_NAME}"]
    }
  }
}
