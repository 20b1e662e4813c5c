# A network of its own, which the node does not offer.
# Ends: blocked: network mode bridge is missing
job "bridged" {
  group "g" {
    network {
      mode     = "bridge"
      hostname = "front"
      port "http" { to = 80 }
      dns {
        servers  = ["10.0.0.10"]
        searches = ["svc.cluster.local"]
        options  = ["ndots:2"]
      }
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
