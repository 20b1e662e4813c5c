# A backup as a batch job: what the first task leaves, the second one packs.
# Ends: complete
# Prints: packed 5 letters
job "backup-now" {
  type = "batch"
  group "backup" {
    task "dump" {
      driver = "raw_exec"
      lifecycle { hook = "prestart" }
      config {
        command = "/bin/sh"
        args    = ["-c", "printf hello > $NOMAD_ALLOC_DIR/data/dump"]
      }
    }
    task "pack" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "gzip $NOMAD_ALLOC_DIR/data/dump; echo packed $(gunzip -c $NOMAD_ALLOC_DIR/data/dump.gz | wc -c) letters"]
      }
    }
  }
}
