# On every node that says it is of a kind: here on none.
# Ends: blocked: filtered by ${meta.role} = edge
job "edge" {
  type = "system"
  group "g" {
    constraint {
      attribute = "${meta.role}"
      value     = "edge"
    }
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
    }
  }
}
