# A container of an image, on a node that runs none.
# Ends: blocked: driver docker is missing or unhealthy
job "contained" {
  group "g" {
    network {
      mode = "bridge"
      port "http" { to = 80 }
    }
    task "web" {
      driver = "docker"
      config {
        image   = "nginx:1.29"
        ports   = ["http"]
        command = "nginx"
        args    = ["-g", "daemon off;"]
      }
    }
  }
}
