# Constraints on versions: as Nomad's language has them, and semantic ones.
# Ends: complete
job "versioned" {
  type = "batch"
  constraint {
    attribute = "${attr.cpu.numcores}"
    version   = ">= 1, < 99999"
  }
  constraint {
    attribute = "1.2.3"
    operator  = "version"
    value     = "~> 1.2"
  }
  constraint {
    attribute = "1.2.3"
    semver    = ">= 1.2.0, < 2.0.0"
  }
  constraint {
    attribute = "1.2.3"
    operator  = "semver"
    value     = "!= 1.3.0"
  }
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
