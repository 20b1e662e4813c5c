# Archives and single files, by every mode, with checks of what was fetched; nothing answers here.
# Ends: failed
job "fetched-forms" {
  type = "batch"
  group "g" {
    restart {
      attempts = 0
      mode     = "fail"
    }
    reschedule {
      attempts  = 0
      unlimited = false
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      artifact {
        source      = "http://127.0.0.1:21999/app.tar.gz"
        destination = "local/app"
        mode        = "dir"
        options {
          archive  = "tar.gz"
          checksum = "md5:d41d8cd98f00b204e9800998ecf8427e"
        }
      }
      artifact {
        source = "http://127.0.0.1:21999/tool.gz"
        options {
          archive  = "false"
          filename = "tool"
        }
        headers { Accept = "*/*" }
      }
    }
  }
}
