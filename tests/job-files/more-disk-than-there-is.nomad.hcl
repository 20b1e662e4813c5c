# A larger disk than any node has.
# Ends: blocked: disk exhausted
job "wide-disk" {
  group "g" {
    ephemeral_disk { size = 90000000 }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
