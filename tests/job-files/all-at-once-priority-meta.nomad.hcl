# The attributes of a job itself.
# Ends: running
job "attributes" {
  name        = "Attributes"
  type        = "service"
  priority    = 40
  all_at_once = true
  datacenters = ["dc1", "dc2"]
  node_pool   = "default"
  region      = "global"

  meta {
    owner = "shop"
    with-dash = "yes"
  }

  group "g" {
    count = 2
    meta { tier = "front" }
    update { min_healthy_time = "0s" }
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
