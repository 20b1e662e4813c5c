# Elements by number and by key, members by a dot, and the old form of an index.
# Ends: complete
# Prints: A=b
# Prints: B=2
# Prints: C=2
# Prints: D=deep
# Prints: E=b
# Prints: F=dashed
locals {
  list = ["a", "b"]
  map  = { x = 1, y = 2, "with-dash" = "dashed" }
  tree = { branch = [{ leaf = "deep" }] }
  key  = "y"
}
job "members" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/usr/bin/env" }
      env {
        A = local.list[1]
        B = local.map.y
        C = local.map[local.key]
        D = local.tree.branch[0].leaf
        E = local.list.1
        F = local.map.with-dash
      }
    }
  }
}
