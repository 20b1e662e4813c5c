# Refused: Consul for the job, for a group and for a task.
# Ends: refused: 4, 5, 7, 11
job "consulted-everywhere" {
  consul {}
  consul_token = "x"
  group "g" {
    consul {}
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      consul {}
    }
  }
}
