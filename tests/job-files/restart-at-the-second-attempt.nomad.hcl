# A task that fails at first, and succeeds when it is started again.
# Ends: complete
# Prints: first attempt
# Prints: second attempt
job "twice" {
  type = "batch"
  group "g" {
    restart {
      attempts = 2
      interval = "1m"
      delay    = "100ms"
      mode     = "fail"
    }
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args = ["-c", <<EOT
if [ -e $NOMAD_TASK_DIR/tried ]; then
  echo second attempt
else
  touch $NOMAD_TASK_DIR/tried
  echo first attempt
  exit 1
fi
EOT
        ]
      }
    }
  }
}
