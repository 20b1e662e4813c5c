# Settings of driver exec that a node allows without being asked.
# Ends: complete
# Prints: /tmp 1
job "exec-settings" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "exec"
      config {
        command      = "/bin/sh"
        args         = ["-c", "echo $(pwd) $$"]
        workDir      = "/tmp"
        pidMode      = "private"
        ipcMode      = "private"
        capDrop      = ["net_raw"]
        pidsLimit    = 50
        cpuHardLimit = true
      }
    }
  }
}
