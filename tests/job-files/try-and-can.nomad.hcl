# What is done where something has no value: the first that has one, or whether there is one.
# Ends: complete
# Prints: A=none
# Prints: B=80
# Prints: C=false
# Prints: D=true
# Prints: E=last
locals {
  service = { port = 80 }
}
job "tries" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/usr/bin/env" }
      env {
        A = try(local.service.name, "none")
        B = try(local.service.port, "none")
        C = can(local.service.name)
        D = can(local.service.port)
        E = try(local.service.name, local.service.id, "last")
      }
    }
  }
}
