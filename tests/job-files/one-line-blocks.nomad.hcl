# Blocks on one line, with one attribute each.
# Ends: complete
# Prints: one line
job "narrow" {
  type = "batch"
  meta { owner = "shop" }
  group "g" {
    ephemeral_disk { size = 200 }
    restart { attempts = 1 }
    network { mode = "host" }
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = ["one line"]
      }
      resources { memory = 32 }
      env { A = "b" }
    }
  }
}
