# A network of its own.
job "bridged" {
  group "g" {
    network {
      mode = "bridge"
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
