# Durations in every form: units, several of them, fractions, and nanoseconds.
# Ends: running
job "durations" {
  group "g" {
    update {
      min_healthy_time  = "0.01s"
      healthy_deadline  = "1m30s"
      progress_deadline = 600000000000
    }
    restart {
      attempts = 1
      interval = "1h0m5s"
      delay    = "1500ms"
    }
    task "t" {
      driver       = "raw_exec"
      kill_timeout = 1000000000
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
    }
  }
}
