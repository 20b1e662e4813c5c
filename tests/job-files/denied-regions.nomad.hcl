# Denied: several regions, commands to run, and what a service and a check have of Consul.
# Ends: denied
# Names: spec.multiregion
# Names: spec.update.stagger
# Names: spec.groups[0].services[0].addressMode
# Names: spec.groups[0].services[0].meta
# Names: spec.groups[0].services[0].checks[0].addressMode
# Names: spec.groups[0].services[1].address
# Names: spec.groups[0].tasks[0].actions
job "regions" {
  update { stagger = "1m" }
  multiregion {
    strategy {
      max_parallel = 1
      on_failure   = "fail_all"
    }
    region "west" {
      count       = 2
      datacenters = ["west-1"]
      node_pool   = "default"
      meta {
        side = "left"
      }
    }
    region "east" {
      count = 1
    }
  }
  group "g" {
    ephemeral_disk { migrate = true }
    network {
      port "http" {}
    }
    service {
      name         = "regions"
      port         = "http"
      address_mode = "alloc"
      meta { side = "left" }
      check {
        type         = "tcp"
        address_mode = "driver"
        interval     = "10s"
        timeout      = "1s"
      }
    }
    service {
      name    = "elsewhere"
      port    = "http"
      address = "203.0.113.1"
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      action "dump" {
        command = "/bin/echo"
        args    = ["state"]
      }
    }
  }
}
