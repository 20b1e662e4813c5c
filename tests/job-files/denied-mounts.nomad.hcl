# Denied: mounts, a plugin and memory as this version has them not.
# Ends: denied
# Names: spec.groups[0].tasks[0].volumeMounts[0].propagationMode
# Names: spec.groups[0].tasks[0].volumeMounts[0].selinuxLabel
# Names: spec.groups[0].tasks[0].volumeMounts[1].propagationMode
# Names: spec.groups[0].tasks[0].resources.numa
# Names: spec.groups[0].tasks[0].csiPlugin.mountDir
# Names: spec.groups[0].tasks[0].csiPlugin.stagePublishBaseDir
job "mounts" {
  group "g" {
    volume "data" {
      type   = "host"
      source = "data"
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      volume_mount {
        volume           = "data"
        destination      = "/data"
        propagation_mode = "bidirectional"
        selinux_label    = "Z"
      }
      volume_mount {
        volume           = "data"
        destination      = "/more"
        propagation_mode = "host-to-task"
      }
      csi_plugin {
        id                     = "hostdir"
        type                   = "monolith"
        mount_dir              = "/csi"
        stage_publish_base_dir = "/stage"
      }
      resources {
        numa { affinity = "require" }
      }
    }
  }
}
