# Constraints of the job, of its group and of a task; all of them must hold.
# Ends: complete
job "constrained" {
  type = "batch"
  constraint {
    attribute = "${attr.kernel.name}"
    value     = "linux"
  }
  group "g" {
    constraint {
      attribute = "${node.datacenter}"
      operator  = "="
      value     = "dc1"
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      constraint {
        attribute = "${attr.driver.exec}"
        value     = "1"
      }
    }
  }
}
