# Tasks before, after and behind the main one, which write into the directory that they share.
# Ends: complete
# Prints: order prestart main poststop
job "in-order" {
  type = "batch"
  group "g" {
    task "main" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "printf ' main' >> $NOMAD_ALLOC_DIR/order"]
      }
    }
    task "before" {
      driver = "raw_exec"
      lifecycle {
        hook    = "prestart"
        sidecar = false
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "printf prestart >> $NOMAD_ALLOC_DIR/order"]
      }
    }
    task "behind" {
      driver = "raw_exec"
      lifecycle { hook = "poststop" }
      config {
        command = "/bin/sh"
        args    = ["-c", "echo order $(cat $NOMAD_ALLOC_DIR/order) poststop"]
      }
    }
  }
}
