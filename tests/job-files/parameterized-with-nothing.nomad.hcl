# Dispatched with anything: a block that says nothing else.
# Ends: waits
job "dispatched-with-anything" {
  type = "batch"
  parameterized {}
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
