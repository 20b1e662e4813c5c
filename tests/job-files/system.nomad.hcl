# On every node.
job "everywhere" {
  type = "system"
  group "g" {
    update {
      max_parallel     = 3
      min_healthy_time = "1s"
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
