# Each allocation of a batch has another index, and takes its part of the work by it.
# Ends: complete
# Prints: part 0 of 3
# Prints: part 1 of 3
# Prints: part 2 of 3
locals { parts = 3 }
job "fan-out" {
  type = "batch"
  group "worker" {
    count = local.parts
    task "work" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = ["part ${NOMAD_ALLOC_INDEX} of ${local.parts}"]
      }
    }
  }
}
