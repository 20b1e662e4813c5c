# Templates are rendered again before each restart.
# Ends: complete
# Prints: text 1
# Prints: text 2
job "rendered-again" {
  type = "batch"
  group "g" {
    restart {
      attempts         = 1
      interval         = "1m"
      delay            = "100ms"
      mode             = "fail"
      render_templates = true
    }
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "n=$(cat local/n local/n2 2>/dev/null | wc -l); cat local/text | sed s/N/$n/; rm local/text; echo >> local/n2; test $n = 2"]
      }
      template {
        data        = "text N\n"
        destination = "local/text"
      }
      template {
        data        = "\n"
        destination = "local/n"
      }
    }
  }
}
