# A folder of the node.
job "hosted" {
  group "g" {
    volume "certs" {
      type      = "host"
      source    = "certs"
      read_only = true
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      volume_mount {
        volume      = "certs"
        destination = "/etc/certs"
      }
    }
  }
}
