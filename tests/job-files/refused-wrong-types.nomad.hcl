# Refused: values of another type than their attribute has.
# Ends: refused: 4, 6, 9, 11
job "mistyped" {
  priority = "high"
  group "g" {
    count = 1.5
    task "t" {
      driver       = "exec"
      kill_timeout = "soon"
      config { command = "/bin/true" }
      leader = "perhaps"
    }
  }
}
