# A node that does not say what is asked for is left out.
# Ends: blocked: filtered by ${meta.rack} = r1
job "racked" {
  group "g" {
    constraint {
      attribute = "${meta.rack}"
      value     = "r1"
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
