# A database with a sidecar that shows its numbers, on ports of their own.
# Ends: running
# Prints: metrics of 127.0.0.1:21010
job "database" {
  group "db" {
    update { min_healthy_time = "0s" }
    network {
      port "db" { static = 21010 }
      port "metrics" { static = 21011 }
    }
    task "db" {
      driver       = "raw_exec"
      leader       = true
      kill_timeout = "1s"
      kill_signal  = "SIGTERM"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
    }
    task "exporter" {
      driver       = "raw_exec"
      kill_timeout = "1s"
      lifecycle {
        hook    = "poststart"
        sidecar = true
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "echo metrics of ${NOMAD_ADDR_db}; exec sleep 1000"]
      }
    }
  }
}
