# Settings of driver exec by the names that Nomad gives them.
# Ends: complete
# Prints: /tmp
job "nomads-settings" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "exec"
      config {
        command  = "/bin/pwd"
        work_dir = "/tmp"
        pid_mode = "private"
        ipc_mode = "private"
        cap_drop = ["net_raw"]
      }
    }
  }
}
