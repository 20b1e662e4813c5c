# The network of the host by its usual name, with a port on it, and its values for the task.
# Ends: complete
# Prints: 127.0.0.1 21003 127.0.0.1:21003 21003
job "on-the-host" {
  type = "batch"
  group "g" {
    network {
      mode = "host"
      port "api" {
        static       = 21003
        host_network = "default"
      }
    }
    task "t" {
      driver = "exec"
      config {
        command = "/bin/echo"
        args    = ["${NOMAD_IP_api} ${NOMAD_PORT_api} ${NOMAD_HOST_ADDR_api} ${NOMAD_HOST_PORT_api}"]
      }
    }
  }
}
