# Wishes for nodes, of the job and of a group.
# Ends: running
job "wishes" {
  affinity {
    attribute = "${node.datacenter}"
    value     = "dc1"
    weight    = 75
  }
  affinity {
    attribute = "${node.class}"
    operator  = "regexp"
    value     = "^fast"
    weight    = -20
  }
  spread {
    attribute = "${node.datacenter}"
    weight    = 80
    target "dc1" { percent = 70 }
    target "dc2" { percent = 30 }
  }
  group "g" {
    count = 3
    update { min_healthy_time = "0s" }
    spread { attribute = "${meta.rack}" }
    affinity {
      attribute = "${meta.ssd}"
      value     = "true"
    }
    task "t" {
      driver       = "exec"
      kill_timeout = "1s"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
    }
  }
}
