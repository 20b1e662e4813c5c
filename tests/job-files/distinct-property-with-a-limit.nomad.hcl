# At most two for each value, by the long form.
# Ends: complete
job "paired" {
  type = "batch"
  constraint {
    attribute = "${node.datacenter}"
    operator  = "distinct_property"
    value     = "2"
  }
  group "g" {
    count = 2
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
