id           = "data[0]"
name         = "data"
type         = "csi"
plugin_id    = "ebs"
capacity_min = "10GiB"
capacity_max = "20GB"

capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}
mount_options {
  fs_type     = "ext4"
  mount_flags = ["noatime"]
}
secrets {
  key = "swordfish"
}
parameters {
  type = "gp3"
}
topology_request {
  required {
    topology {
      segments {
        zone = "a"
      }
    }
    topology {
      segments {
        zone = "b"
      }
    }
  }
}
