# The old name of the same switch.
# Ends: complete
job "quiet-of-old" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/bin/true" }
      logs { enabled = false }
    }
  }
}
