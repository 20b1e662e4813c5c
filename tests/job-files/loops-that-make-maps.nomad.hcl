# Loops that make maps; with three dots behind the value, one key has several.
# Ends: complete
# Prints: A=A
# Prints: B=ab,ac
# Prints: C=one
# Prints: D=2
locals {
  names = ["ab", "ac", "bd"]
}
job "maps" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/usr/bin/env" }
      env {
        A = { for k in ["a", "b"] : k => upper(k) }["a"]
        B = join(",", { for n in local.names : substr(n, 0, 1) => n... }["a"])
        C = { for k, v in { one = 1, two = 2 } : v => k }["1"]
        D = length(keys({ for i, n in local.names : n => i if i > 0 }))
      }
    }
  }
}
