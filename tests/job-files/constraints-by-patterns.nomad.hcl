# Constraints by regular expressions.
# Ends: complete
job "patterned" {
  type = "batch"
  constraint {
    attribute = "${attr.kernel.name}"
    regexp    = "^(linux|freebsd)$"
  }
  constraint {
    attribute = "${attr.cpu.arch}"
    operator  = "regexp"
    value     = "64"
  }
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
