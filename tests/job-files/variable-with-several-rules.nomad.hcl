# A variable may have several rules, and each may use functions.
# Ends: complete
# Prints: shop-7
variable "name" {
  type    = string
  default = "shop-7"
  validation {
    condition     = can(regex_replace(var.name, "[^a-z0-9-]", ""))
    error_message = "The name must be text."
  }
  validation {
    condition     = length(split("-", var.name)) == 2
    error_message = "The name must have two parts."
  }
}
job "ruled" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = [var.name]
      }
    }
  }
}
