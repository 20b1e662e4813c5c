# How much of the output is kept.
# Ends: complete
# Prints: kept
job "logged" {
  type = "batch"
  group "g" {
    ephemeral_disk { size = 100 }
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = ["kept"]
      }
      logs {
        max_files     = 3
        max_file_size = 5
      }
    }
  }
}
