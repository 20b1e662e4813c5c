# Constraints on lists in one text: some of them, or all of them.
# Ends: complete
job "sets" {
  type = "batch"
  constraint {
    attribute    = "${attr.os.signals}"
    set_contains = "SIGHUP,SIGTERM"
  }
  constraint {
    attribute = "${attr.os.signals}"
    operator  = "set_contains_all"
    value     = "SIGTERM"
  }
  constraint {
    attribute = "${attr.os.signals}"
    operator  = "set_contains_any"
    value     = "SIGNONE,SIGTERM"
  }
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
