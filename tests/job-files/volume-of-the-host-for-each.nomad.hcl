# A folder of the node for each allocation, written by one; the node does not offer it.
# Ends: blocked: host volume data[0] is missing or cannot be used as asked
job "hosted-each" {
  group "g" {
    count = 2
    volume "data" {
      type            = "host"
      source          = "data"
      per_alloc       = true
      access_mode     = "single-node-single-writer"
      attachment_mode = "file-system"
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
