# More whole cores than any node has.
# Ends: blocked: cores exhausted
job "many-cores" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      resources { cores = 99 }
    }
  }
}
