# Blocks made of values within such blocks: the inner one sees the outer one's value.
# Ends: complete
# Prints: a-x
# Prints: a-y
# Prints: b-z
locals {
  groups = { a = ["x", "y"], b = ["z"] }
}
job "nested-blocks" {
  type = "batch"
  dynamic "group" {
    for_each = local.groups
    labels   = [group.key]
    content {
      dynamic "task" {
        for_each = group.value
        labels   = [task.value]
        content {
          driver = "raw_exec"
          config {
            command = "/bin/echo"
            args    = ["${group.key}-${task.value}"]
          }
        }
      }
    }
  }
}
