# Refused: a value that is made of itself.
# Ends: refused: 4
locals {
  a = "${local.a}x"
}
job "refused-locals" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
