# Volumes of drivers, one for all and one for each, that are not there.
# Ends: blocked: does not exist
job "stored" {
  group "g" {
    count = 2
    volume "own" {
      type            = "csi"
      source          = "data"
      per_alloc       = true
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"
      mount_options {
        fs_type     = "ext4"
        mount_flags = ["noatime"]
      }
    }
    volume "shared" {
      type            = "csi"
      source          = "shared-data"
      read_only       = true
      access_mode     = "multi-node-reader-only"
      attachment_mode = "file-system"
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      volume_mount {
        volume      = "shared"
        destination = "/shared"
        read_only   = true
      }
      volume_mount {
        volume      = "own"
        destination = "/data"
      }
    }
  }
}
