# A template that cannot be read.
# Ends: failed
job "template-wrong" {
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
      template {
        data        = "{{ if }}"
        destination = "local/x"
      }
    }
  }
}
