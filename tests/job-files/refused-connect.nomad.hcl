# Refused: a service mesh.
# Ends: refused: 12
job "meshed" {
  group "g" {
    network {
      mode = "bridge"
      port "http" {}
    }
    service {
      name = "web"
      port = "http"
      connect {
        sidecar_service {}
      }
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
