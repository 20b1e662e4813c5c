# A part of the memory for secrets, and cores of any memory bank.
# Ends: complete
job "newer-resources" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      resources {
        cores   = 1
        memory  = 64
        secrets = 2
        numa { affinity = "none" }
      }
    }
  }
}
