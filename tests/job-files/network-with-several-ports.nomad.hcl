# Names of ports with letters of every kind, as the task sees them.
# Ends: complete
# Prints: 21006 21007
job "port-names" {
  type = "batch"
  group "g" {
    network {
      port "admin_http" { static = 21006 }
      port "Admin-GRPC2" { static = 21007 }
    }
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo $NOMAD_PORT_admin_http $NOMAD_PORT_Admin_GRPC2"]
      }
    }
  }
}
