# Dispatched with or without a payload; what is left out of the meta has a default.
# Ends: waits
job "pictures" {
  type = "batch"
  meta { size = "small" }
  parameterized {
    payload       = "optional"
    meta_optional = ["size"]
  }
  group "g" {
    task "t" {
      driver = "exec"
      config {
        command = "/bin/echo"
        args    = ["${NOMAD_META_size}"]
      }
      dispatch_payload { file = "in/picture.bin" }
    }
  }
}
