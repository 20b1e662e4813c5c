# A script that also runs on the first rendering, and a template that is rendered once.
# Ends: running
job "template-first-script" {
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
          command             = "/bin/true"
          run_on_first_render = true
        }
      }
      template {
        data        = "y"
        destination = "local/y"
        once        = true
      }
    }
  }
}
