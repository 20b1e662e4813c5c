# Refused: ports, operations and disk among the resources of a task.
# Ends: refused: 10, 13, 14
job "refused-resources" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      resources {
        cpu  = 100
        network {
          port "http" {}
        }
        iops = 10
        disk = 100
      }
    }
  }
}
