# Values from outside, with types, defaults and rules.
# Ends: complete
# Prints: a b quiet
# Prints: NOMAD_META_tier front
variable "count" {
  type        = number
  default     = 2
  description = "How many."
  validation {
    condition     = var.count > 0 && var.count < 10
    error_message = "The count must be from 1 to 9."
  }
}
variable "names" {
  type    = list(string)
  default = ["a", "b"]
}
variable "labels" {
  type    = map(string)
  default = { tier = "front", zone = "a" }
}
variable "shape" {
  type = object({
    cpu    = number
    memory = number
  })
  default = {
    cpu    = 100
    memory = 32
  }
}
variable "is_debug" {
  type    = bool
  default = false
}
job "varied" {
  type = "batch"
  meta = var.labels
  group "g" {
    count = var.count
    task "t" {
      driver = "exec"
      config {
        command = "/bin/sh"
        args    = concat(["-c", "echo $*; echo NOMAD_META_tier $NOMAD_META_tier", "name"], var.names, [var.is_debug ? "debug" : "quiet"])
      }
      resources {
        cpu    = var.shape.cpu
        memory = var.shape["memory"]
      }
    }
  }
}
