# Comments of every style, wherever they may stand.
# Ends: complete
# Prints: no comment # in a string // either /* here */
/* A comment of
   several lines. */
// and one of a line
# and another
job "commented" { # behind
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec" // here too
      config {
        command = /* in between */ "/bin/echo"
        args = [ # in a list
          "no comment # in a string // either /* here */", // the last comma stays
        ]
      }
    }
  }
}
/* and the end */
