# A fixed port twice on the only node: the second allocation finds no place.
# Ends: blocked: network exhausted
job "port-taken" {
  group "g" {
    count = 2
    network {
      port "http" { static = 21005 }
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
