# As many canaries as allocations: all of the new version runs before the old one ends.
# Ends: running
job "blue-green" {
  group "g" {
    count = 2
    update {
      max_parallel     = 2
      canary           = 2
      min_healthy_time = "0s"
      auto_promote     = true
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
