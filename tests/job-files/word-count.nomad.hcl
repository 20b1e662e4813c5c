# A batch that splits a text, counts in several tasks at once, and adds up behind them.
# Ends: complete
# Prints: 6 words
locals {
  lines = ["one two three", "four", "five six"]
}
job "words" {
  type = "batch"
  group "g" {
    dynamic "task" {
      for_each = local.lines
      labels   = ["count-${task.key}"]
      content {
        driver = "raw_exec"
        config {
          command = "/bin/sh"
          args    = ["-c", "echo '${task.value}' | wc -w > $NOMAD_ALLOC_DIR/data/count-${task.key}"]
        }
      }
    }
    task "add" {
      driver = "raw_exec"
      lifecycle { hook = "poststop" }
      config {
        command = "/bin/sh"
        args    = ["-c", "n=0; for f in $NOMAD_ALLOC_DIR/data/count-*; do n=$((n + $(cat $f))); done; echo $n words"]
      }
    }
  }
}
