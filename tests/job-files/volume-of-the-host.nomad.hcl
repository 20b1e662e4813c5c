# A folder of the node, which it does not offer.
# Ends: blocked: host volume certs is missing or cannot be used as asked
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
