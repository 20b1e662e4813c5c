# An id that no Kubernetes name can be.
job "team/Web_Front" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
