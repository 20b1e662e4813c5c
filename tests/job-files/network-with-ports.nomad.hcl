# Ports of the node: any free one, a fixed one, and one that is another inside.
# Ends: complete
# Prints: admin 127.0.0.1:21001
# Prints: mapped 8080
job "ports" {
  type = "batch"
  group "g" {
    network {
      port "http" {}
      port "admin" { static = 21001 }
      port "mapped" { to = 8080 }
    }
    task "t" {
      driver = "exec"
      config {
        command = "/usr/bin/printf"
        args    = ["%s\n", "http ${NOMAD_PORT_http}", "admin ${NOMAD_ADDR_admin}", "mapped ${NOMAD_PORT_mapped}"]
      }
    }
  }
}
