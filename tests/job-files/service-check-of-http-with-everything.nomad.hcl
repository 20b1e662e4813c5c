# All that an http check may say.
# Ends: running
job "http-check" {
  group "g" {
    update {
      health_check     = "task_states"
      min_healthy_time = "0s"
    }
    network {
      port "https" {}
    }
    service {
      name = "http-check"
      port = "https"
      check {
        name            = "post"
        type            = "http"
        protocol        = "https"
        tls_skip_verify = true
        method          = "POST"
        path            = "/health?deep=1"
        body            = "ping"
        interval        = "30s"
        timeout         = "2s"
        on_update       = "ignore"
        header {
          Authorization = ["Basic aGk6aGk="]
          Accept        = ["text/plain", "text/html"]
        }
      }
    }
    task "t" {
      driver       = "raw_exec"
      kill_timeout = "1s"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
    }
  }
}
