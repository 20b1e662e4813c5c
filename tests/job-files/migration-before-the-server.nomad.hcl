# A server that begins once a task before it has prepared its data.
# Ends: running
# Prints: data of version 2
job "prepared-server" {
  group "server" {
    update { min_healthy_time = "0s" }
    task "migrate" {
      driver = "raw_exec"
      lifecycle {
        hook    = "prestart"
        sidecar = false
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "echo version 2 > $NOMAD_ALLOC_DIR/data/schema"]
      }
    }
    task "server" {
      driver       = "raw_exec"
      kill_timeout = "1s"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo data of $(cat $NOMAD_ALLOC_DIR/data/schema); exec sleep 1000"]
      }
    }
  }
}
