# A token for the task.
job "known" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      identity {
        env  = true
        file = true
      }
    }
  }
}
