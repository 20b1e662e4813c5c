# Scaled by an autoscaler, whose policy is its own.
# Ends: running
job "elastic" {
  group "g" {
    count = 2
    update { min_healthy_time = "0s" }
    scaling {
      enabled = true
      min     = 1
      max     = 10
      policy {
        cooldown            = "1m"
        evaluation_interval = "10s"
        check "cpu" {
          source = "prometheus"
          query  = "avg(cpu)"
          strategy "target-value" {
            target = 70
          }
        }
      }
    }
    task "t" {
      driver       = "exec"
      kill_timeout = "1s"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
    }
  }
}
