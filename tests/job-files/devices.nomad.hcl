# A device with wishes of its own, which the node has not.
# Ends: blocked: the devices nvidia/gpu that a task asks for are missing
job "accelerated" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      resources {
        device "nvidia/gpu" {
          count = 2
          constraint {
            attribute = "${device.attr.memory}"
            operator  = ">="
            value     = "4 GiB"
          }
          affinity {
            attribute = "${device.model}"
            value     = "a100"
            weight    = 50
          }
        }
      }
    }
  }
}
