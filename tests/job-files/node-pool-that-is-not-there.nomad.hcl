# A pool of nodes that has none.
# Ends: blocked: pool gpu has no node
job "pooled" {
  node_pool = "gpu"
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
