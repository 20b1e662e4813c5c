# At most one allocation for each value of something that nodes say.
# Ends: blocked: the limit of distinct_property is reached
job "spaced" {
  type = "batch"
  group "g" {
    count = 2
    constraint { distinct_property = "${node.datacenter}" }
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
