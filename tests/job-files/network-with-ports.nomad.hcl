# Ports of the node.
job "ports" {
  group "g" {
    network {
      port "http" {}
      port "admin" { static = 9901 }
      port "mapped" { to = 8080 }
    }
    task "t" {
      driver = "exec"
      config {
        command = "/bin/echo"
        args    = ["${NOMAD_PORT_http}", "${NOMAD_ADDR_admin}"]
      }
    }
  }
}
