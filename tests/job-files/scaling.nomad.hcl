# Scaled by an autoscaler.
job "elastic" {
  group "g" {
    count = 2
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
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
