# Canaries that a person promotes; the first version has none.
# Ends: running
job "canaries" {
  group "g" {
    count = 2
    update {
      max_parallel     = 1
      canary           = 1
      min_healthy_time = "0s"
      auto_promote     = false
      auto_revert      = true
    }
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
