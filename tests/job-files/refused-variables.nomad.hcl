# Refused: a variable without a value, one of a wrong type, and one that breaks its rule.
# Ends: refused: 3, 6, 10
variable "needed" {
  type = string
}
variable "number" {
  type    = number
  default = "many"
}
variable "small" {
  type    = number
  default = 100
  validation {
    condition     = var.small < 10
    error_message = "It must be small."
  }
}
job "refused-variables" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
