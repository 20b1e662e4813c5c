# Locals that are text, numbers, lists, maps and what other locals make of them.
# Ends: complete
# Prints: web-1=10 web-2=20
locals {
  lines  = [for name, weight in local.weights : "${name}=${weight}"]
  prefix = "web"
  weights = {
    for n in local.numbers : "${local.prefix}-${n}" => n * local.factor
  }
  numbers = [1, 2]
  factor  = 10
}
job "computed" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = local.lines
      }
    }
  }
}
