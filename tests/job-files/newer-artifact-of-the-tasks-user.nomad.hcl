# A file that belongs to the task's user; nothing answers here.
# Ends: failed
job "fetched-for-nobody" {
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
      user   = "nobody"
      config { command = "/bin/true" }
      artifact {
        source      = "http://127.0.0.1:21999/tool"
        destination = "local/tool"
        mode        = "file"
        chown       = true
      }
    }
  }
}
