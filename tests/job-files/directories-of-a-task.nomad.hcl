# The directories that a task has: its own, that of its group, and one for secrets.
# Ends: complete
# Prints: shared
# Prints: own
# Prints: secret
job "directories" {
  type = "batch"
  group "g" {
    task "first" {
      driver = "exec"
      lifecycle { hook = "prestart" }
      config {
        command = "/bin/sh"
        args    = ["-c", "echo shared > ${NOMAD_ALLOC_DIR}/data/file"]
      }
    }
    task "second" {
      driver = "exec"
      config {
        command = "/bin/sh"
        args = ["-c", <<EOT
cat ${NOMAD_ALLOC_DIR}/data/file
echo own > ${NOMAD_TASK_DIR}/file && cat local/file
echo secret > ${NOMAD_SECRETS_DIR}/file && cat secrets/file
EOT
        ]
      }
    }
  }
}
