# Services of a group and of a task, with checks of several kinds.
job "served" {
  group "g" {
    network {
      port "http" {}
      port "grpc" {}
    }
    service {
      name     = "web"
      port     = "http"
      provider = "nomad"
      tags     = ["a", "b-${NOMAD_ALLOC_INDEX}"]
      canary_tags = ["canary"]
      check {
        name     = "alive"
        type     = "http"
        path     = "/health"
        method   = "GET"
        interval = "10s"
        timeout  = "2s"
        header { Accept = ["text/plain"] }
        check_restart {
          limit = 3
          grace = "30s"
        }
      }
      check {
        type     = "tcp"
        port     = "grpc"
        interval = "5s"
        timeout  = "1s"
      }
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      service {
        name     = "rpc"
        port     = "grpc"
        provider = "nomad"
      }
    }
  }
}
