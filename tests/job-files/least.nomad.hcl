# The least that a job file can say; its task ends, and a batch job is done then.
# Ends: complete
job "least" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
