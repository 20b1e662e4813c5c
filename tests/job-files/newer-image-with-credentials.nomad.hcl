# Credentials for the registry of an image.
# Ends: blocked: driver docker is missing or unhealthy
job "private-image" {
  group "g" {
    task "web" {
      driver             = "docker"
      image_pull_secrets = ["registry"]
      config {
        image = "registry.example.com/web:1"
      }
    }
  }
}
