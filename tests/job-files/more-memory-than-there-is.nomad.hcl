# More memory than any node has.
# Ends: blocked: memory exhausted
job "huge" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      resources { memory = 900000 }
    }
  }
}
