# Blocks made of a set, each value once and as its own key, and of a list that is empty.
# Ends: complete
# Prints: one one one
# Prints: two two two
job "keys-of-a-set" {
  type = "batch"
  dynamic "constraint" {
    for_each = []
    content {
      attribute = "${meta.none}"
      value     = constraint.value
    }
  }
  group "g" {
    dynamic "task" {
      for_each = convert(["two", "one", "two"], set(string))
      labels   = [task.value]
      content {
        driver = "raw_exec"
        config {
          command = "/bin/echo"
          args    = ["${NOMAD_TASK_NAME} ${task.key} ${task.value}"]
        }
      }
    }
  }
}
