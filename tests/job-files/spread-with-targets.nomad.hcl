# A spread of a group with shares for some values.
# Ends: complete
job "shared-out" {
  type = "batch"
  group "g" {
    count = 2
    spread {
      attribute = "${node.datacenter}"
      weight    = 100
      target "dc1" { percent = 60 }
      target "dc2" { percent = 40 }
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
