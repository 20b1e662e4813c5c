# Files that are rendered before the start, and variables of them.
# Ends: complete
# Prints: task t
# Prints: on
# Prints: b
# Prints: PORT 8080
job "rendered" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "cat local/app.conf local/other; echo; echo PORT $PORT"]
      }
      template {
        data          = <<-EOF
          task {{ env "NOMAD_TASK_NAME" }}
          {{ if true }}on{{ end }}
        EOF
        destination   = "local/app.conf"
        perms         = "0600"
        change_mode   = "signal"
        change_signal = "SIGHUP"
      }
      template {
        data        = "PORT=8080"
        destination = "secrets/env"
        env         = true
        wait {
          min = "2s"
          max = "10s"
        }
      }
      template {
        data            = "[[ env \"A\" ]]"
        destination     = "local/other"
        left_delimiter  = "[["
        right_delimiter = "]]"
        change_mode     = "noop"
        splay           = "1s"
      }
      env {
        A = "b"
        C_D = "${NOMAD_TASK_NAME}"
      }
    }
  }
}
