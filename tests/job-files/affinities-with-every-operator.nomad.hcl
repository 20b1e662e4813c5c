# Wishes may compare as constraints do; none of them keeps a node out.
# Ends: complete
job "wishful" {
  type = "batch"
  affinity {
    attribute = "${attr.kernel.name}"
    operator  = "!="
    value     = "plan9"
  }
  affinity {
    attribute = "${attr.memory.totalbytes}"
    operator  = ">"
    value     = "1000"
    weight    = 10
  }
  affinity {
    attribute = "${attr.cpu.numcores}"
    version   = ">= 2"
    weight    = 20
  }
  affinity {
    attribute = "${attr.drover.version}"
    semver    = ">= 0.1.0"
    weight    = 30
  }
  affinity {
    attribute = "${attr.cpu.arch}"
    regexp    = "^amd"
    weight    = 100
  }
  affinity {
    attribute    = "${attr.os.signals}"
    set_contains = "SIGHUP"
    weight       = -100
  }
  affinity {
    attribute        = "${attr.os.signals}"
    set_contains_all = "SIGHUP,SIGTERM"
    weight           = 1
  }
  affinity {
    attribute        = "${attr.os.signals}"
    set_contains_any = "SIGHUP,SIGNONE"
    weight           = -1
  }
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
