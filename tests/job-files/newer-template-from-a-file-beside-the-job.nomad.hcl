# The text of a template comes from a file beside the job file.
# Ends: complete
# Prints: hello from a file
job "file-for-a-template" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "exec"
      config {
        command = "/bin/cat"
        args    = ["local/greeting"]
      }
      template {
        data        = file("files/greeting.txt")
        destination = "local/greeting"
      }
    }
  }
}
