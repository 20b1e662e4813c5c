# A network of CNI, which the node does not have.
# Ends: blocked: network mode cni/backbone is missing
job "by-cni" {
  group "g" {
    network {
      mode = "cni/backbone"
      port "http" { to = -1 }
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
