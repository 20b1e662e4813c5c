# Wishes of a group, and of a task in it.
# Ends: complete
job "leaning" {
  type = "batch"
  group "g" {
    affinity {
      attribute = "${node.unique.name}"
      value     = "n-1"
      weight    = 100
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      affinity {
        attribute = "${attr.cpu.arch}"
        value     = "amd64"
        weight    = 50
      }
    }
  }
}
