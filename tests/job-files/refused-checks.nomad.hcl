# Refused: what only Consul does with a check.
# Ends: refused: 17, 18, 19, 20, 21, 22
job "refused-checks" {
  group "g" {
    network {
      port "http" {}
    }
    service {
      name = "refused-checks"
      port = "http"
      check {
        type     = "http"
        path     = "/"
        interval = "10s"
        timeout  = "1s"

        expose                   = true
        success_before_passing   = 2
        failures_before_critical = 3
        failures_before_warning  = 1
        tls_server_name          = "example.com"
        notes                    = "ask the shop"
      }
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
