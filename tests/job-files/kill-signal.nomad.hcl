# A signal that asks a task to end, and how long it may take; a leader's end sends it here.
# Ends: complete
# Prints: asked by SIGUSR1
job "asked" {
  type = "batch"
  group "g" {
    shutdown_delay = "100ms"
    task "leader" {
      driver = "raw_exec"
      leader = true
      config {
        command = "/bin/sleep"
        args    = ["1"]
      }
    }
    task "asked" {
      driver         = "raw_exec"
      kill_signal    = "SIGUSR1"
      kill_timeout   = "4s"
      shutdown_delay = "100ms"
      config {
        command = "/bin/sh"
        args    = ["-c", "trap 'echo asked by SIGUSR1; exit 0' USR1; while true; do sleep 0.1; done"]
      }
    }
  }
}
