# Without isolation.
job "raw" {
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo $PATH; exit 0"]
      }
    }
  }
}
