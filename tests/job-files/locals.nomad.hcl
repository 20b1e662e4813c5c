# Values of their own, in any order and in two blocks.
# Ends: complete
# Prints: web-FRONT 50
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
  type = "batch"
  group "g" {
    task "t" {
      driver = "exec"
      config {
        command = "/bin/echo"
        args    = ["${NOMAD_JOB_NAME} ${NOMAD_CPU_LIMIT}"]
      }
      resources { cpu = local.chosen }
    }
  }
}
