# Services of a group and of a task, with checks of several kinds; health is that of the tasks alone.
# Ends: running
job "served" {
  group "g" {
    update {
      health_check     = "task_states"
      min_healthy_time = "0s"
    }
    network {
      port "http" {}
      port "grpc" {}
    }
    service {
      name     = "served-web"
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
      driver       = "exec"
      kill_timeout = "1s"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
      service {
        name     = "served-rpc"
        port     = "grpc"
        provider = "nomad"
      }
    }
  }
}
