# An id that no Kubernetes name can be.
# Ends: complete
# Prints: team/Web_Front
job "team/Web_Front" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "exec"
      config {
        command = "/bin/echo"
        args    = ["${NOMAD_JOB_ID}"]
      }
    }
  }
}
