# A variable whose default is null counts as not given.
# Ends: complete
# Prints: not given
variable "owner" {
  type    = string
  default = null
}
job "ownerless" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = [var.owner == null ? "not given" : var.owner]
      }
    }
  }
}
