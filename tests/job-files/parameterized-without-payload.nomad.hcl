# Dispatched with meta alone; a payload is refused.
# Ends: waits
job "reports" {
  type = "batch"
  parameterized {
    payload       = "forbidden"
    meta_required = ["month"]
  }
  group "g" {
    task "t" {
      driver = "exec"
      config {
        command = "/bin/echo"
        args    = ["report of ${NOMAD_META_month}"]
      }
    }
  }
}
