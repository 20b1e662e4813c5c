# No network at all.
# Ends: complete
job "offline" {
  type = "batch"
  group "g" {
    network { mode = "none" }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
