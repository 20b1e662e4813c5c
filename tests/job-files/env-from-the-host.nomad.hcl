# A variable of the host by env, beside one of the task.
# Ends: complete
# Prints: path is there
job "host-environment" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "test -n \"${env["PATH"]}\" && echo path is there"]
      }
    }
  }
}
