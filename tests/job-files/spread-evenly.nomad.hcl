# A spread without targets: as many on each value.
# Ends: complete
job "even" {
  type = "batch"
  spread {
    attribute = "${node.unique.name}"
  }
  group "g" {
    count = 3
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
