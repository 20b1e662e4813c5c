# A job for one node, which is not there.
# Ends: blocked: filtered by ${node.unique.name} = n-99
job "elsewhere" {
  constraint {
    attribute = "${node.unique.name}"
    value     = "n-99"
  }
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
