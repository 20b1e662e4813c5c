# Two dollars keep a reference of the shell for the shell, and the node leaves it as it is.
# Ends: complete
# Prints: short from the shell
# Prints: long from the shell
job "shell" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo short $WORDS; echo long $${WORDS}"]
      }
      env { WORDS = "from the shell" }
    }
  }
}
