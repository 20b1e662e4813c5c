# A node that is away ends its allocations itself after a while.
# Ends: running
job "away-and-over" {
  group "g" {
    update { min_healthy_time = "0s" }
    disconnect {
      stop_on_client_after = "5m"
      replace              = true
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
