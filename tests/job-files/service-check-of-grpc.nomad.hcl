# A check by the health service of gRPC, with TLS.
# Ends: running
job "grpc-check" {
  group "g" {
    update {
      health_check     = "task_states"
      min_healthy_time = "0s"
    }
    network {
      port "grpc" {}
    }
    service {
      name = "grpc-check"
      port = "grpc"
      check {
        type            = "grpc"
        grpc_service    = "shop.Orders"
        grpc_use_tls    = true
        tls_skip_verify = true
        interval        = "30s"
        timeout         = "2s"
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
