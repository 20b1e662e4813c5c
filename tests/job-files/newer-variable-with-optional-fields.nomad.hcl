# Fields of an object that may be left out are null then.
# Ends: complete
# Prints: web has no port
variable "service" {
  type = object({
    name = string
    port = optional(number)
  })
  default = { name = "web" }
}
job "optional-fields" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = ["${var.service.name} has ${var.service.port == null ? "no port" : "a port"}"]
      }
    }
  }
}
