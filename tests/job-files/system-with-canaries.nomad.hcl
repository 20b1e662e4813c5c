# On every node, tried on half of them first.
# Ends: running
job "tried-first" {
  type = "system"
  group "g" {
    update {
      canary           = 50
      auto_promote     = true
      min_healthy_time = "10ms"
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
