# A template that an earlier task has written into the directory that they share.
# Ends: complete
# Prints: written for main
job "template-source" {
  type = "batch"
  group "g" {
    task "writer" {
      driver = "exec"
      lifecycle { hook = "prestart" }
      config {
        command = "/bin/sh"
        args    = ["-c", "echo 'written for {{ env \"NOMAD_TASK_NAME\" }}' > $NOMAD_ALLOC_DIR/data/in.tpl"]
      }
    }
    task "main" {
      driver = "exec"
      config {
        command = "/bin/cat"
        args    = ["local/out"]
      }
      template {
        source      = "${NOMAD_ALLOC_DIR}/data/in.tpl"
        destination = "local/out"
      }
    }
  }
}
