# Tasks that are the two halves of a plugin for volumes: they run, and no volume asks for them.
# Ends: running
job "plugin" {
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
        id             = "hostdir"
        type           = "node"
        health_timeout = "5m"
      }
    }
    task "controller" {
      driver       = "raw_exec"
      kill_timeout = "1s"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
      csi_plugin {
        id             = "hostdir"
        type           = "controller"
        health_timeout = "5m"
      }
    }
  }
}
