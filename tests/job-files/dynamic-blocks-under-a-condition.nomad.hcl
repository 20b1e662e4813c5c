# A block that is there where a condition holds.
# Ends: complete
# Prints: debug
variable "is_debug" {
  type    = bool
  default = true
}
job "conditional-blocks" {
  type = "batch"
  group "g" {
    task "main" {
      driver = "raw_exec"
      config { command = "/bin/true" }
    }
    dynamic "task" {
      for_each = var.is_debug ? ["debug"] : []
      labels   = [task.value]
      content {
        driver = "raw_exec"
        config {
          command = "/bin/echo"
          args    = [task.value]
        }
      }
    }
  }
}
