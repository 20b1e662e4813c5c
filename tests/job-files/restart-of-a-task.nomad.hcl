# A task with another restart policy than its group.
# Ends: complete
job "own-policy" {
  type = "batch"
  group "g" {
    restart {
      attempts = 1
      interval = "10m"
      delay    = "1s"
      mode     = "delay"
    }
    task "t" {
      driver = "raw_exec"
      config { command = "/bin/true" }
      restart {
        attempts = 5
        interval = "20m"
        delay    = "2s"
        mode     = "fail"
      }
    }
  }
}
