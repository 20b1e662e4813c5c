# Numbers among the arguments become text, as Nomad's drivers read them.
# Ends: complete
# Prints: 80 9
job "numbered" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = [80, max(4, 9, 2)]
      }
    }
  }
}
