# Names and text of any script.
# Ends: complete
# Prints: größe 日本語 ПРИВЕТ 3
locals {
  größe = "größe"
}
job "scripts" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = ["${local.größe} 日本語 ${upper("привет")} ${strlen("日本語")}"]
      }
    }
  }
}
