# Shares of the processor, whole cores, memory that may grow.
# Ends: complete
# Prints: shares 250 64
# Prints: cores 32
job "sized" {
  type = "batch"
  group "g" {
    task "shares" {
      driver = "exec"
      config {
        command = "/bin/echo"
        args    = ["shares ${NOMAD_CPU_LIMIT} ${NOMAD_MEMORY_LIMIT}"]
      }
      resources {
        cpu        = 250
        memory     = 64
        memory_max = 128
      }
    }
    task "cores" {
      driver = "exec"
      config {
        command = "/bin/echo"
        args    = ["cores ${NOMAD_MEMORY_LIMIT}"]
      }
      resources {
        cores  = 1
        memory = 32
      }
    }
  }
}
