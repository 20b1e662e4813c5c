# More of the processor than any node has.
# Ends: blocked: cpu exhausted
job "fast" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      resources { cpu = 900000 }
    }
  }
}
