# Splats: of elements, of their attributes, of one thing that is no list, and of nothing.
# Ends: complete
# Prints: A=web,api
# Prints: B=80,81
# Prints: C=only
# Prints: D=0
# Prints: E=b
locals {
  services = [
    { name = "web", ports = [{ n = 80 }] },
    { name = "api", ports = [{ n = 81 }] },
  ]
  one     = { name = "only" }
  nothing = null
}
job "splats" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/usr/bin/env" }
      env {
        A = join(",", local.services[*].name)
        B = join(",", local.services[*].ports[0].n)
        C = join(",", local.one[*].name)
        D = length(local.nothing[*])
        E = [{ v = "a" }, { v = "b" }].*.v[1]
      }
    }
  }
}
