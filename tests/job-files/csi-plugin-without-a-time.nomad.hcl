# A plugin for volumes that has the usual time to become healthy.
# Ends: running
job "plugin-without-a-time" {
  group "g" {
    update { min_healthy_time = "0s" }
    task "plugin" {
      driver       = "raw_exec"
      kill_timeout = "1s"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
      csi_plugin {
        id   = "hostdir-2"
        type = "node"
      }
    }
  }
}
