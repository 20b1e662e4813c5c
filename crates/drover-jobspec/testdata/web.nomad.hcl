# A service as people write it: variables, locals, dynamic blocks, heredocs and what only the node knows.
variable "datacenters" {
  type    = list(string)
  default = ["dc1", "dc2"]
}

variable "image_tag" {
  description = "What is rolled out."
  type        = string
  default     = "1.4.2"

  validation {
    condition     = var.image_tag != ""
    error_message = "A tag is needed."
  }
}

variable "ports" {
  type = map(object({ to = number }))
  default = {
    admin = { to = 9000 }
    http  = { to = 8080 }
  }
}

locals {
  name   = "web-${local.team}"
  team   = upper("shop")
  common = { team = local.team, rank = 1 + 2 * 3 }
}

job "web/front" {
  datacenters = var.datacenters
  namespace   = "shop"
  type        = "service"
  priority    = 70
  meta        = merge(local.common, { tag = var.image_tag })

  constraint {
    attribute = "${attr.kernel.name}"
    value     = "linux"
  }
  constraint {
    attribute = attr.cpu.arch
    operator  = "regexp"
    value     = "amd64|arm64"
  }
  constraint {
    distinct_hosts = true
  }
  constraint {
    attribute = "${meta.version}"
    semver    = ">= 1.2"
  }
  spread {
    attribute = "${node.datacenter}"
    weight    = 60
    target "dc1" {
      percent = 70
    }
    target "dc2" {
      percent = 30
    }
  }

  update {
    max_parallel      = 2
    canary            = 1
    min_healthy_time  = "10s"
    healthy_deadline  = "5m"
    progress_deadline = "10m"
    auto_revert       = true
  }
  reschedule {
    delay          = "30s"
    delay_function = "exponential"
    max_delay      = "1h"
    unlimited      = true
  }

  group "front" {
    count          = 3
    shutdown_delay = "2s"

    network {
      mode = "host"
      dynamic "port" {
        for_each = var.ports
        labels   = [port.key]
        content {
          to     = port.value.to
          static = port.key == "admin" ? 9100 : null
        }
      }
    }

    service {
      name     = "front"
      port     = "http"
      provider = "nomad"
      tags     = ["v1", format("tag-%s", var.image_tag)]
      check {
        type     = "http"
        path     = "/health"
        interval = "10s"
        timeout  = "2s"
        header {
          Accept = ["text/plain", "*/*"]
        }
        check_restart {
          limit = 3
          grace = "30s"
        }
      }
    }

    volume "data" {
      type            = "csi"
      source          = "data"
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"
      per_alloc       = true
    }

    task "server" {
      driver = "exec"
      user   = "www-data"
      config {
        command = "/usr/bin/server"
        args = [
          "-listen", "${NOMAD_IP_http}:${NOMAD_PORT_http}",
          "-arch", attr.cpu.arch,
          "-upper", "${upper(var.image_tag)}",
        ]
        mount {
          type   = "bind"
          source = "local"
        }
      }
      env {
        NAME    = local.name
        ALLOC   = "${ NOMAD_ALLOC_ID }"
        LITERAL = "$${not.a.reference}"
        WORKERS = 4
      }
      template {
        destination = "local/config.ini"
        change_mode = "signal"
        change_signal = "SIGHUP"
        data        = <<-EOF
          [server]
          name = ${local.name}
          %{ for dc in var.datacenters ~}
          dc = ${dc}
          %{ endfor ~}
          addr = {{ env "NOMAD_ADDR_http" }}
        EOF
      }
      resources {
        cpu        = 500
        memory     = 256
        memory_max = 512
        device "nvidia/gpu" {
          count = 1
        }
      }
      volume_mount {
        volume      = "data"
        destination = "/data"
      }
      kill_timeout = "20s"
    }

    task "init" {
      driver = "exec"
      lifecycle {
        hook = "prestart"
      }
      config {
        command = "/bin/true"
      }
      artifact {
        source      = "https://example.com/assets.tar.gz"
        destination = "local/assets"
        options {
          checksum = "sha256:abc"
        }
      }
    }
  }
}
