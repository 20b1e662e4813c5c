# Refused: services of Consul.
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
