# A volume that the replacement of an allocation gets again.
# Ends: blocked: host volume data is missing or cannot be used as asked
job "sticky" {
  group "g" {
    volume "data" {
      type        = "host"
      source      = "data"
      sticky      = true
      access_mode = "single-node-writer"
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      volume_mount {
        volume      = "data"
        destination = "/data"
      }
    }
  }
}
