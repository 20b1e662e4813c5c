# A task as a user of the node.
# Ends: complete
# Prints: nobody
job "as-nobody" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "exec"
      user   = "nobody"
      config {
        command = "/usr/bin/id"
        args    = ["-un"]
      }
    }
  }
}
