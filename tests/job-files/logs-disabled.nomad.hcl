# A task whose output is not kept, beside one whose output is.
# Ends: complete
# Prints: this is kept
job "quiet" {
  type = "batch"
  group "g" {
    task "quiet" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = ["this is not kept"]
      }
      logs { disabled = true }
    }
    task "loud" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = ["this is kept"]
      }
      logs { disabled = false }
    }
  }
}
