# A mark of the order of bytes, as some editors write it before the text.
# Ends: complete
# Prints: behind a mark
job "marked" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = ["behind a mark"]
      }
    }
  }
}
