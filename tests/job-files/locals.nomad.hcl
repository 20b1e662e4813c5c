# Values of their own, in any order.
locals {
  full  = "${local.first}-${local.last}"
  first = "web"
  last  = upper("front")
  sizes = { small = 50, large = 500 }
}
locals {
  chosen = local.sizes[local.key]
  key    = "small"
}
job "named" {
  name = local.full
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      resources { cpu = local.chosen }
    }
  }
}
