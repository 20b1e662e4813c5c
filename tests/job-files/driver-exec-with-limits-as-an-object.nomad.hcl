# Limits of a process as an object: the JSON of Nomad has a list of one object.
# Ends: complete
# Prints: 64 0
job "exec-limits-object" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo $(ulimit -n) $(ulimit -c)"]
        ulimit = {
          nofile = "64:128"
          core   = "0"
        }
      }
    }
  }
}
