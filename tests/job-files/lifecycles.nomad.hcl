# Tasks around the main one: before it, beside it, after its start and after its end.
# Ends: running
# Prints: prepared
# Prints: announced
job "staged" {
  group "g" {
    update { min_healthy_time = "0s" }
    task "prepare" {
      driver = "exec"
      lifecycle { hook = "prestart" }
      config {
        command = "/bin/echo"
        args    = ["prepared"]
      }
    }
    task "proxy" {
      driver       = "exec"
      kill_timeout = "1s"
      lifecycle {
        hook    = "prestart"
        sidecar = true
      }
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
    }
    task "main" {
      driver         = "exec"
      leader         = true
      kill_timeout   = "2s"
      kill_signal    = "SIGTERM"
      shutdown_delay = "100ms"
      user           = "nobody"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
    }
    task "announce" {
      driver = "exec"
      lifecycle { hook = "poststart" }
      config {
        command = "/bin/echo"
        args    = ["announced"]
      }
    }
    task "clean" {
      driver = "exec"
      lifecycle { hook = "poststop" }
      config { command = "/bin/true" }
    }
  }
}
