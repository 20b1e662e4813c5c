# Functions that take paths apart, and read nothing.
# Ends: complete
# Prints: basename app.conf
# Prints: dirname /etc/app
job "paths" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/printf"
        args    = ["%s\n", "basename ${basename("/etc/app/app.conf")}", "dirname ${dirname("/etc/app/app.conf")}"]
      }
    }
  }
}
