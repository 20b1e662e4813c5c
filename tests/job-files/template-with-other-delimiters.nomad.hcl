# Other delimiters leave the usual ones as they are.
# Ends: complete
# Prints: {{ kept }} by t
job "template-delimiters" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "exec"
      config {
        command = "/bin/cat"
        args    = ["local/out"]
      }
      template {
        data            = "{{ kept }} by <% env \"NOMAD_TASK_NAME\" %>\n"
        destination     = "local/out"
        left_delimiter  = "<%"
        right_delimiter = "%>"
      }
    }
  }
}
