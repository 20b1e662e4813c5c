# Tasks around the main one.
job "staged" {
  group "g" {
    task "prepare" {
      driver = "exec"
      lifecycle { hook = "prestart" }
      config { command = "/bin/true" }
    }
    task "proxy" {
      driver = "exec"
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
      kill_timeout   = "20s"
      kill_signal    = "SIGINT"
      shutdown_delay = "2s"
      user           = "nobody"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
    }
    task "announce" {
      driver = "exec"
      lifecycle { hook = "poststart" }
      config { command = "/bin/true" }
    }
    task "clean" {
      driver = "exec"
      lifecycle { hook = "poststop" }
      config { command = "/bin/true" }
    }
  }
}
