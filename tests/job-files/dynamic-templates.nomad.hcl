# Templates and variables of a task made of a map.
# Ends: complete
# Prints: debug
# Prints: 8080
locals {
  files = { level = "debug", port = 8080 }
}
job "many-templates" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "cat local/level; cat local/port"]
      }
      dynamic "template" {
        for_each = local.files
        content {
          data        = "${template.value}\n"
          destination = "local/${template.key}"
        }
      }
    }
  }
}
