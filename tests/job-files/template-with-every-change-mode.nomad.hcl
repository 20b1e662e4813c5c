# What follows when a rendered file changes: nothing, a restart, or a signal.
# Ends: complete
job "template-changes" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      template {
        data        = "a"
        destination = "local/a"
        change_mode = "noop"
      }
      template {
        data        = "b"
        destination = "local/b"
        change_mode = "restart"
        splay       = "10s"
      }
      template {
        data          = "c"
        destination   = "local/c"
        change_mode   = "signal"
        change_signal = "SIGUSR1"
      }
      template {
        data                 = "d"
        destination          = "local/d"
        error_on_missing_key = true
        wait {
          min = "5s"
          max = "90s"
        }
      }
    }
  }
}
