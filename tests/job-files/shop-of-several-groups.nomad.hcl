# A shop: a front, a queue of workers and a cache, with what all of them share in one place.
# Ends: running
# Prints: front for shop
# Prints: worker for shop
# Prints: cache for shop
locals {
  parts = {
    front  = { count = 2, memory = 64 }
    worker = { count = 1, memory = 32 }
    cache  = { count = 1, memory = 16 }
  }
}
job "shop" {
  meta { owner = "shop" }
  update {
    min_healthy_time = "0s"
    max_parallel     = 1
  }
  dynamic "group" {
    for_each = local.parts
    iterator = part
    labels   = [part.key]
    content {
      count = part.value.count
      task "main" {
        driver       = "raw_exec"
        kill_timeout = "1s"
        config {
          command = "/bin/sh"
          args    = ["-c", "echo $NOMAD_GROUP_NAME for $NOMAD_META_owner; exec sleep 1000"]
        }
        resources { memory = part.value.memory }
      }
    }
  }
}
