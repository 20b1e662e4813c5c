# Conditions within conditions; only the side that is taken needs a value.
# Ends: complete
# Prints: A=medium
# Prints: B=none
# Prints: C=first
locals {
  size = 50
  list = ["first"]
}
job "conditions" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/usr/bin/env" }
      env {
        A = local.size < 10 ? "small" : local.size < 100 ? "medium" : "large"
        B = length(local.list) > 5 ? local.list[0] : "none"
        C = length(local.list) > 0 ? local.list[0] : "none"
      }
    }
  }
}
