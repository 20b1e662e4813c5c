# Every way to ask for a folder of a node; the node offers none.
# Ends: blocked: host volume a is missing or cannot be used as asked
job "host-modes" {
  group "g" {
    volume "a" {
      type        = "host"
      source      = "a"
      access_mode = "single-node-reader"
      read_only   = true
    }
    volume "b" {
      type        = "host"
      source      = "b"
      access_mode = "single-node-reader-only"
      read_only   = true
    }
    volume "c" {
      type            = "host"
      source          = "c"
      access_mode     = "single-node-multi-writer"
      attachment_mode = "file-system"
    }
    volume "d" {
      type            = "host"
      source          = "d"
      access_mode     = "single-node-writer"
      attachment_mode = "block-device"
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      volume_mount {
        volume      = "c"
        destination = "/data"
      }
    }
  }
}
