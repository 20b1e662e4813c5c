# A shipper of logs on every node, with a place of its own for what it has not sent.
# Ends: running
# Prints: shipping from n-1
job "log-shipper" {
  type     = "system"
  priority = 80
  constraint {
    attribute = "${attr.kernel.name}"
    value     = "linux"
  }
  update {
    max_parallel     = 1
    min_healthy_time = "10ms"
  }
  group "shipper" {
    ephemeral_disk {
      size   = 200
      sticky = true
    }
    task "ship" {
      driver       = "raw_exec"
      kill_timeout = "1s"
      template {
        data        = <<EOT
node: {{ env "node.unique.name" }}
EOT
        destination = "local/shipper.yaml"
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "echo shipping from $(cut -d' ' -f2 local/shipper.yaml); exec sleep 1000"]
      }
      resources {
        cpu    = 50
        memory = 32
      }
    }
  }
}
