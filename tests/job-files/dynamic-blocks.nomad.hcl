# Blocks made of values: constraints of a list, groups with labels, ports by a map and a named iterator.
# Ends: complete
# Prints: a n0
# Prints: b n1
locals {
  ports = { http = 8080, admin = 9090 }
  racks = ["r1", "r2"]
}
job "made" {
  type = "batch"
  dynamic "constraint" {
    for_each = local.racks
    content {
      attribute = "${meta.rack}"
      operator  = "!="
      value     = constraint.value
    }
  }
  dynamic "group" {
    for_each = ["a", "b"]
    labels   = ["group-${group.value}"]
    content {
      network {
        dynamic "port" {
          for_each = local.ports
          iterator = it
          labels   = [it.key]
          content {
            to = it.value
          }
        }
      }
      task "t" {
        driver = "exec"
        config {
          command = "/bin/echo"
          args    = [group.value, "n${group.key}"]
        }
      }
    }
  }
}
