# A script that runs in the task when a file changes.
# Ends: running
job "template-script" {
  group "g" {
    update { min_healthy_time = "0s" }
    task "t" {
      driver       = "exec"
      kill_timeout = "1s"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
      template {
        data        = "x"
        destination = "local/x"
        change_mode = "script"
        change_script {
          command       = "/bin/sh"
          args          = ["-c", "cat local/x"]
          timeout       = "3s"
          fail_on_error = true
        }
      }
    }
  }
}
