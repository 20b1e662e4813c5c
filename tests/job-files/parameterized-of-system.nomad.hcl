# Dispatched to every node.
# Ends: waits
job "commands" {
  type = "sysbatch"
  parameterized { meta_required = ["what"] }
  group "g" {
    task "t" {
      driver = "exec"
      config {
        command = "/bin/echo"
        args    = ["${NOMAD_META_what}"]
      }
    }
  }
}
