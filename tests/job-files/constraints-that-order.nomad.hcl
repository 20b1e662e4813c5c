# Constraints that compare: less, more, and the same; numbers count as numbers.
# Ends: complete
job "ordered" {
  type = "batch"
  constraint {
    attribute = "${attr.memory.totalbytes}"
    operator  = ">"
    value     = "1000"
  }
  constraint {
    attribute = "${attr.cpu.numcores}"
    operator  = ">="
    value     = "1"
  }
  constraint {
    attribute = "${attr.cpu.numcores}"
    operator  = "<"
    value     = "99999"
  }
  constraint {
    attribute = "${attr.cpu.numcores}"
    operator  = "<="
    value     = "99999"
  }
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
