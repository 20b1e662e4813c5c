# A disk that allocations share with those before them, and that stays on its node.
# Ends: complete
# Prints: kept
job "disks" {
  type = "batch"
  group "g" {
    ephemeral_disk {
      size    = 150
      sticky  = true
      migrate = false
    }
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo kept > $NOMAD_ALLOC_DIR/data/file && cat $NOMAD_ALLOC_DIR/data/file"]
      }
    }
  }
}
