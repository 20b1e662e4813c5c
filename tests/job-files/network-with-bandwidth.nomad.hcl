# The bandwidth that old job files ask for is taken, and not looked at.
# Ends: complete
job "banded" {
  type = "batch"
  group "g" {
    network {
      mbits = 10
      port "http" { static = 21002 }
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
