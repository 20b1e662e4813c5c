# Several groups and tasks.
job "crowd" {
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
      config { command = "/bin/true" }
    }
    task "y" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
