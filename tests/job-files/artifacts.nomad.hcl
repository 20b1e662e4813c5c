# Files from elsewhere, from a server that does not answer.
# Ends: failed
job "fetched" {
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
      config { command = "local/bin/server" }
      artifact {
        source      = "http://127.0.0.1:21999/server-${attr.cpu.arch}.tgz"
        destination = "local/bin"
        mode        = "any"
        options {
          checksum = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        }
        headers {
          X-Team = "shop"
        }
      }
      artifact {
        source      = "http://127.0.0.1:21999/settings.json"
        destination = "local/settings.json"
        mode        = "file"
      }
    }
  }
}
