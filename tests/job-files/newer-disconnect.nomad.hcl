# What becomes of allocations on a node that is away: each group takes another one back.
# Ends: running
locals {
  wishes = { best = "best_score", longest = "longest_running", original = "keep_original", other = "keep_replacement" }
}
job "away" {
  update { min_healthy_time = "0s" }
  dynamic "group" {
    for_each = local.wishes
    labels   = [group.key]
    content {
      disconnect {
        lost_after = "6h"
        replace    = group.key != "original"
        reconcile  = group.value
      }
      task "t" {
        driver       = "raw_exec"
        kill_timeout = "1s"
        config {
          command = "/bin/sleep"
          args    = ["1000"]
        }
      }
    }
  }
}
