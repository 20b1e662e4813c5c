# Whole cores, memory that may grow, logs.
job "sized" {
  group "g" {
    task "shares" {
      driver = "exec"
      config { command = "/bin/true" }
      resources {
        cpu        = 250
        memory     = 64
        memory_max = 128
      }
      logs {
        max_files     = 3
        max_file_size = 5
      }
    }
    task "cores" {
      driver = "exec"
      config { command = "/bin/true" }
      resources {
        cores  = 1
        memory = 32
      }
      logs { disabled = true }
    }
  }
}
