# The short forms of is_set and is_not_set.
# Ends: complete
job "newer-present" {
  type = "batch"
  constraint {
    attribute = "${attr.kernel.name}"
    is_set    = true
  }
  constraint {
    attribute  = "${meta.retired}"
    is_not_set = true
  }
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
