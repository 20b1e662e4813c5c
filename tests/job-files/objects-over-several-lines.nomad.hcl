# Objects and lists over several lines, with and without commas.
# Ends: complete
# Prints: a b c d
locals {
  lines = {
    first  = "a"
    second = "b"
  }
  commas = { first = "c", second = "d", }
}
job "objects" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args = [
          local.lines.first,
          local.lines.second,
          local.commas.first, local.commas.second,
        ]
      }
    }
  }
}
