# A name beside the id, and the namespace written out.
# Ends: complete
# Prints: with-a-name The Name default
job "with-a-name" {
  type      = "batch"
  name      = "The Name"
  namespace = "default"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = ["${NOMAD_JOB_ID} ${NOMAD_JOB_NAME} ${NOMAD_NAMESPACE}"]
      }
    }
  }
}
