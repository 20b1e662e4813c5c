# Two allocations of one job on two nodes, where there is one.
# Ends: blocked: another allocation of the job is there already (distinct_hosts)
job "apart" {
  type = "batch"
  group "g" {
    count = 2
    constraint { distinct_hosts = true }
    task "t" {
      driver = "exec"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
      kill_timeout = "1s"
    }
  }
}
