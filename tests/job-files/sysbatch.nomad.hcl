# Once on every node.
# Ends: complete
job "everywhere-once" {
  type     = "sysbatch"
  priority = 30
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
