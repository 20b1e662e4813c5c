# What the Kubernetes Service of a service is like: its port, without an address of its own, what is spoken there.
# Ends: running
job "kubernetes-service" {
  group "g" {
    update { min_healthy_time = "0s" }
    network {
      port "http" {}
    }
    service {
      name     = "kubernetes-service"
      port     = "http"
      provider = "kubernetes"
      kubernetes {
        port         = 8080
        headless     = true
        app_protocol = "http"
      }
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
