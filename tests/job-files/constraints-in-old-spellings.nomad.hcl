# The old spellings of two operators: == and is, != and not.
# Ends: complete
job "spelled" {
  type = "batch"
  constraint {
    attribute = "${attr.kernel.name}"
    operator  = "=="
    value     = "linux"
  }
  constraint {
    attribute = "${attr.kernel.name}"
    operator  = "is"
    value     = "linux"
  }
  constraint {
    attribute = "${attr.kernel.name}"
    operator  = "not"
    value     = "windows"
  }
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
