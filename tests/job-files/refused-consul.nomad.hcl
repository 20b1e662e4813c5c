# Refused: a service of Consul.
# Ends: refused: 11
job "consulted" {
  group "g" {
    network {
      port "http" {}
    }
    service {
      name     = "web"
      port     = "http"
      provider = "consul"
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
