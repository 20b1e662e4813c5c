# A batch job that may run for an hour at most.
# Ends: complete
job "limited" {
  type = "batch"
  group "g" {
    max_run_duration = "1h"
    task "t" {
      driver = "raw_exec"
      config { command = "/bin/true" }
    }
  }
}
