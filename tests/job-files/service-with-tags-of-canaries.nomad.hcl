# Other tags while an allocation is a canary, and two services on one port.
# Ends: running
job "tagged" {
  group "g" {
    update {
      canary           = 1
      auto_promote     = true
      min_healthy_time = "0s"
    }
    network {
      port "http" {}
    }
    service {
      name         = "tagged-live"
      port         = "http"
      provider     = "nomad"
      address_mode = "auto"
      tags         = ["live"]
      canary_tags  = ["canary"]
    }
    service {
      name = "tagged-metrics"
      port = "http"
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
