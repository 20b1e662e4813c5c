# The job of web.yaml as a job file of Nomad's.
#
#   drover job run examples/web.nomad.hcl --var count=2
#   drover job import examples/web.nomad.hcl > web.yaml     # for kubectl and GitOps

variable "count" {
  description = "Copies of the server."
  type        = number
  default     = 3
}

job "web" {
  type = "service"

  group "web" {
    count = var.count

    restart {
      attempts = 2
      interval = "30m"
      delay    = "2s"
      mode     = "fail"
    }

    network {
      mode = "host"
      port "http" {}
    }

    task "server" {
      driver = "raw_exec"

      config {
        command = "drover-example-web"
      }

      kill_signal  = "SIGTERM"
      kill_timeout = "5s"

      resources {
        cpu    = 20
        memory = 32
      }
    }
  }
}
