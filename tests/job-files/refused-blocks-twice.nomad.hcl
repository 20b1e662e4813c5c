# Refused: blocks that may stand once.
# Ends: refused: 6, 11
job "doubled" {
  group "g" {
    restart { attempts = 1 }
    restart { attempts = 2 }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      lifecycle { hook = "prestart" }
      lifecycle { hook = "poststop" }
    }
  }
}
