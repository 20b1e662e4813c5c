# The attributes of a job itself.
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
    count = 3
    meta { tier = "front" }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
