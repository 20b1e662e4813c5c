# A network of the node that it does not have.
# Ends: blocked: host network public for port http is missing
job "on-another-network" {
  group "g" {
    network {
      port "http" {
        host_network = "public"
      }
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
