# One file for several environments: a map holds what differs.
# Ends: complete
# Prints: test: 1 of debug
variable "environment" {
  type    = string
  default = "test"
  validation {
    condition     = contains(["test", "live"], var.environment)
    error_message = "The environment must be test or live."
  }
}
locals {
  of = {
    test = { count = 1, level = "debug" }
    live = { count = 5, level = "info" }
  }
  own = local.of[var.environment]
}
job "environments" {
  type = "batch"
  group "g" {
    count = local.own.count
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = ["${var.environment}: ${local.own.count} of ${local.own.level}"]
      }
    }
  }
}
