# The old block that names several variables at once.
# Ends: complete
# Prints: eu 3
variables {
  zone  = "eu"
  count = 3
}
job "many-variables" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = ["${var.zone} ${var.count}"]
      }
    }
  }
}
