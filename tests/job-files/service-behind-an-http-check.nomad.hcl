# A web server, and a check that asks it: it is healthy once it answers.
# Ends: running
job "web-server" {
  group "web" {
    update {
      health_check     = "checks"
      min_healthy_time = "10ms"
    }
    network {
      port "http" {}
    }
    service {
      name = "web-server"
      port = "http"
      tags = ["public", "v1"]
      check {
        type     = "http"
        path     = "/"
        interval = "1s"
        timeout  = "1s"
      }
    }
    task "server" {
      driver       = "raw_exec"
      kill_timeout = "1s"
      config {
        command = "python3"
        args    = ["-m", "http.server", "${NOMAD_PORT_http}", "--bind", "${NOMAD_IP_http}", "--directory", "local"]
      }
      template {
        data        = "<h1>hello</h1>"
        destination = "local/index.html"
      }
    }
  }
}
