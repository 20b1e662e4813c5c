# The bounds of a count, which a person scales; the policy is switched off.
# Ends: running
job "bounded" {
  group "g" {
    scaling {
      min     = 0
      max     = 3
      enabled = false
    }
    update { min_healthy_time = "0s" }
    task "t" {
      driver       = "raw_exec"
      kill_timeout = "1s"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
    }
  }
}
