# A list as YAML, in a file of a template.
# Ends: complete
# Prints: - 80
# Prints: - true
job "yaml" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/cat"
        args    = ["local/app.yaml"]
      }
      template {
        data        = yamlencode([80, true])
        destination = "local/app.yaml"
      }
    }
  }
}
