# A default is converted to the type that the variable names.
# Ends: complete
# Prints: 8 5s true a,b
variable "number" {
  type    = number
  default = "7"
}
variable "string" {
  type    = string
  default = 5
}
variable "bool" {
  type    = bool
  default = "true"
}
variable "strings" {
  type    = list(string)
  default = ["a", "b"]
}
job "converted" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = ["${var.number + 1} ${var.string}s ${var.bool && true} ${join(",", var.strings)}"]
      }
    }
  }
}
