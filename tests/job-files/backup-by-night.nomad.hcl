# A backup: a dump, then a pack of it, each year here; one run at a time.
# Ends: waits
job "backup" {
  type = "batch"
  periodic {
    cron             = "0 2 1 1 *"
    prohibit_overlap = true
    time_zone        = "UTC"
  }
  group "backup" {
    restart {
      attempts = 2
      interval = "10m"
      delay    = "15s"
      mode     = "fail"
    }
    task "dump" {
      driver = "raw_exec"
      lifecycle { hook = "prestart" }
      config {
        command = "/bin/sh"
        args    = ["-c", "date > $NOMAD_ALLOC_DIR/data/dump"]
      }
    }
    task "pack" {
      driver = "raw_exec"
      config {
        command = "/bin/gzip"
        args    = ["${NOMAD_ALLOC_DIR}/data/dump"]
      }
    }
  }
}
