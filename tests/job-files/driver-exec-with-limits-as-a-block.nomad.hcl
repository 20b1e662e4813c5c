# Limits of a process as a block, as in the manual of Nomad.
# Ends: complete
# Prints: 64 0
job "exec-limits-block" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo $(ulimit -n) $(ulimit -c)"]
        ulimit {
          nofile = "64:128"
          core   = "0"
        }
      }
    }
  }
}
