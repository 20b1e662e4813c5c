# Ends of lines as Windows writes them.
# Ends: complete
# Prints: from Windows
job "windows" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = ["from Windows"]
      }
    }
  }
}
