# The first value that is there.
# Ends: complete
# Prints: [] x
job "first" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = ["[${coalesce("", "x")}] ${coalesce(null, "x", "y")}"]
      }
    }
  }
}
