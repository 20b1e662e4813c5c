# Datacenters by a pattern, and every node pool.
# Ends: complete
job "wide" {
  type        = "batch"
  datacenters = ["eu-*", "dc*"]
  node_pool   = "all"
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
