# The old name of the wish that a lost allocation is not replaced.
# Ends: running
job "irreplaceable" {
  group "g" {
    prevent_reschedule_on_lost = true
    update { min_healthy_time = "0s" }
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
