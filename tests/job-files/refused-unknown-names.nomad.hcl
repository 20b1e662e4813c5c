# Refused: names that no block has, with those that it has.
# Ends: refused: 4, 6, 9, 11, 12
job "misnamed" {
  colour = "blue"
  group "g" {
    counts = 3
    task "t" {
      driver = "exec"
      drvier = "exec"
      config { command = "/bin/true" }
      resource { cpu = 100 }
      template { dest = "local/x" }
    }
  }
}
