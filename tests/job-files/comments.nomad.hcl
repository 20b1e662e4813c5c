/* A comment of
   several lines. */
// and one of a line
# and another
job "commented" { # behind
  group "g" {
    task "t" {
      driver = "exec" // here too
      config { command = "/bin/true" /* and here */ }
    }
  }
}
