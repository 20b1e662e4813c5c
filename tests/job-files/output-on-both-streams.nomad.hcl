# A task that writes to both of its streams.
# Ends: complete
# Prints: to stdout
# Prints: to stderr
job "streams" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo to stdout; echo to stderr >&2"]
      }
    }
  }
}
