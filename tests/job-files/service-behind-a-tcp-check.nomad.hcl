# A check that only connects, to another port than that of the service.
# Ends: running
job "tcp-server" {
  group "g" {
    update { min_healthy_time = "10ms" }
    network {
      port "data" {}
      port "health" {}
    }
    service {
      name         = "tcp-server"
      port         = "data"
      address_mode = "host"
      check {
        type         = "tcp"
        port         = "health"
        address_mode = "host"
        interval     = "1s"
        timeout      = "1s"
      }
    }
    task "server" {
      driver       = "raw_exec"
      kill_timeout = "1s"
      config {
        command = "python3"
        args    = ["-m", "http.server", "${NOMAD_PORT_health}", "--bind", "127.0.0.1", "--directory", "local"]
      }
    }
  }
}
