# Refused: what only Consul knows of a service.
# Ends: refused: 11, 14, 17, 18, 22, 23, 24
job "refused-services" {
  group "g" {
    network {
      port "http" {}
    }
    service {
      name = "refused-services"
      port = "http"
      canary_meta {
        tier = "canary"
      }
      tagged_addresses {
        lan = "10.0.0.1"
      }
      enable_tag_override = true
      weights {
        passing = 3
        warning = 1
      }
      cluster = "other"
      identity {}
      kind    = "connect-proxy"
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
