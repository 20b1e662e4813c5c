# Refused: blocks with too few names, and with too many.
# Ends: refused: 4, 11, 12
job "unlabelled" {
  group {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
  group "g" {
    network "n" {}
    task "a" "b" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
