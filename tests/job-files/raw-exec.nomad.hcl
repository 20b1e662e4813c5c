# Without isolation, in a shell.
# Ends: complete
# Prints: raw
job "raw" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "test -n \"$PATH\" && echo raw; exit 0"]
      }
    }
  }
}
