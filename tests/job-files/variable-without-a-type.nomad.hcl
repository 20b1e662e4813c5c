# A variable without a type takes that of its default.
# Ends: complete
# Prints: 8 ab
variable "count" { default = 7 }
variable "names" { default = ["a", "b"] }
job "untyped" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = ["${var.count + 1} ${join("", var.names)}"]
      }
    }
  }
}
