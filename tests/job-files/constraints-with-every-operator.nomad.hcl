# Every operator that a constraint may name, on features that the node lacks.
# Ends: blocked: filtered by ${meta.rack} regexp r[0-9]+
job "constraints" {
  constraint {
    attribute = "${attr.kernel.name}"
    value     = "linux"
  }
  constraint {
    attribute = "${attr.cpu.arch}"
    operator  = "!="
    value     = "s390x"
  }
  constraint {
    attribute = "${attr.cpu.numcores}"
    operator  = "version"
    value     = ">= 1, < 9999"
  }
  constraint {
    attribute = "${attr.drover.version}"
    semver    = ">= 0.0.1"
  }
  constraint {
    attribute = "${meta.rack}"
    regexp    = "r[0-9]+"
  }
  constraint {
    attribute    = "${meta.features}"
    set_contains = "gpu,ssd"
  }
  constraint {
    attribute = "${meta.features}"
    operator  = "set_contains_any"
    value     = "gpu,ssd"
  }
  constraint {
    attribute = "${meta.features}"
    operator  = "set_contains_all"
    value     = "gpu,ssd"
  }
  constraint {
    attribute = "${meta.zone}"
    operator  = "is_set"
  }
  constraint {
    attribute = "${meta.retired}"
    operator  = "is_not_set"
  }
  group "g" {
    constraint { distinct_hosts = true }
    constraint {
      distinct_property = "${meta.rack}"
      value             = "2"
    }
    task "t" {
      driver = "exec"
      constraint {
        attribute = "${attr.memory.totalbytes}"
        operator  = ">"
        value     = "1000"
      }
      config { command = "/bin/true" }
    }
  }
}
