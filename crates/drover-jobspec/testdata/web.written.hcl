job "web/front" {
  type        = "service"
  priority    = 70
  namespace   = "shop"
  datacenters = ["dc1", "dc2"]

  meta {
    rank = "7"
    tag  = "1.4.2"
    team = "SHOP"
  }

  constraint {
    attribute = "${attr.kernel.name}"
    value     = "linux"
  }

  constraint {
    attribute = "${attr.cpu.arch}"
    operator  = "regexp"
    value     = "amd64|arm64"
  }

  constraint {
    operator = "distinct_hosts"
  }

  constraint {
    attribute = "${meta.version}"
    operator  = "semver"
    value     = ">= 1.2"
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
    min_healthy_time  = "10s"
    healthy_deadline  = "5m"
    progress_deadline = "10m"
    auto_revert       = true
    canary            = 1
  }

  group "front" {
    count          = 3
    shutdown_delay = "2s"

    reschedule {
      delay          = "30s"
      delay_function = "exponential"
      max_delay      = "1h"
      unlimited      = true
    }

    network {
      port "admin" {
        static = 9100
        to     = 9000
      }

      port "http" {
        to = 8080
      }
    }

    service {
      name = "front"
      port = "http"
      tags = ["v1", "tag-1.4.2"]

      check {
        name     = "front-check"
        type     = "http"
        interval = "10s"
        timeout  = "2s"
        path     = "/health"

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
      driver       = "exec"
      user         = "www-data"
      kill_timeout = "20s"

      config {
        args = [
          "-listen",
          "${NOMAD_IP_http}:${NOMAD_PORT_http}",
          "-arch",
          "${attr.cpu.arch}",
          "-upper",
          "1.4.2",
        ]
        command = "/usr/bin/server"
        mount = [
          {
            source = "local"
            type   = "bind"
          },
        ]
      }

      env {
        ALLOC   = "${ NOMAD_ALLOC_ID }"
        LITERAL = "${not.a.reference}"
        NAME    = "web-SHOP"
        WORKERS = "4"
      }

      resources {
        cpu        = 500
        memory     = 256
        memory_max = 512

        device "nvidia/gpu" {}
      }

      volume_mount {
        volume      = "data"
        destination = "/data"
      }

      template {
        data = <<EOH
[server]
name = web-SHOP
          dc = dc1
          dc = dc2
          addr = {{ env "NOMAD_ADDR_http" }}
EOH
        destination   = "local/config.ini"
        change_mode   = "signal"
        change_signal = "SIGHUP"
      }
    }

    task "init" {
      driver = "exec"

      config {
        command = "/bin/true"
      }

      lifecycle {
        hook = "prestart"
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
