# Constraints on what a node says at all, or does not say.
# Ends: complete
job "present" {
  type = "batch"
  constraint {
    attribute = "${attr.kernel.name}"
    operator  = "is_set"
  }
  constraint {
    attribute = "${meta.retired}"
    operator  = "is_not_set"
  }
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
