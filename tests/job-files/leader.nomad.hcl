# When the leader ends, the tasks beside it are stopped.
# Ends: complete
# Prints: the leader ends
job "led" {
  type = "batch"
  group "g" {
    task "leader" {
      driver = "raw_exec"
      leader = true
      config {
        command = "/bin/sh"
        args    = ["-c", "sleep 0.5; echo the leader ends"]
      }
    }
    task "follower" {
      driver       = "raw_exec"
      kill_timeout = "1s"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
    }
  }
}
