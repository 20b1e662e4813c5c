# The long form, and one that is switched off.
# Ends: complete
job "apart-or-not" {
  type = "batch"
  group "a" {
    constraint {
      operator = "distinct_hosts"
      value    = "true"
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
  group "b" {
    count = 2
    constraint { distinct_hosts = false }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
