# A network of CNI, which the node does not have.
# Ends: blocked: its network mode is missing
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
