# Any device of a kind, without a count and without wishes.
# Ends: blocked: the devices fpga that a task asks for are missing
job "any-device" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      resources {
        device "fpga" {}
        device "amd/gpu/mi300" { count = 1 }
      }
    }
  }
}
