# The short forms of set_contains_all and set_contains_any.
# Ends: complete
job "newer-sets" {
  type = "batch"
  constraint {
    attribute        = "${attr.os.signals}"
    set_contains_all = "SIGHUP,SIGTERM"
  }
  constraint {
    attribute        = "${attr.os.signals}"
    set_contains_any = "SIGNONE,SIGTERM"
  }
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
