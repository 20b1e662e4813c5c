# Refused: a block that does not end.
# Ends: refused: 9
job "unclosed" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
  }
}
