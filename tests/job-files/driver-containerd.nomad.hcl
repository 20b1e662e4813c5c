# A container by drover's name of the driver, and one with settings of Docker.
# Ends: blocked: driver containerd is missing or unhealthy
job "contained-too" {
  group "g" {
    task "web" {
      driver = "containerd"
      config {
        image = "nginx:1.29"
      }
    }
    task "more" {
      driver = "docker"
      config {
        image      = "redis:8"
        entrypoint = ["/usr/local/bin/redis-server"]
        cap_add    = ["chown"]
      }
    }
  }
}
