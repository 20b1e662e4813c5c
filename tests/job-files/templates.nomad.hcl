# Files that are rendered, and variables of them.
job "rendered" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      template {
        data        = <<-EOF
          {{ env "NOMAD_ALLOC_ID" }}
          {{ if true }}on{{ end }}
        EOF
        destination = "local/app.conf"
        perms       = "0600"
        change_mode = "signal"
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
