# Every way to ask for a volume of a driver; none of them is there.
# Ends: blocked: does not exist
locals {
  modes = ["single-node-writer", "multi-node-single-writer", "multi-node-multi-writer"]
  reads = ["single-node-reader-only", "multi-node-reader-only"]
}
job "modes" {
  group "g" {
    dynamic "volume" {
      for_each = local.modes
      labels   = ["a${volume.key}"]
      content {
        type            = "csi"
        source          = "written-${volume.key}"
        access_mode     = volume.value
        attachment_mode = "file-system"
      }
    }
    dynamic "volume" {
      for_each = local.reads
      labels   = ["r${volume.key}"]
      content {
        type            = "csi"
        source          = "read-${volume.key}"
        access_mode     = volume.value
        attachment_mode = "file-system"
        read_only       = true
      }
    }
    volume "z" {
      type            = "csi"
      source          = "raw"
      access_mode     = "single-node-writer"
      attachment_mode = "block-device"
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      volume_mount {
        volume           = "a0"
        destination      = "/data"
        read_only        = false
        propagation_mode = "private"
      }
    }
  }
}
