# Variables from a template: plain, quoted, and with comments between them.
# Ends: complete
# Prints: HOST=db.example.com
# Prints: GREETING=hello world
job "template-variables" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/usr/bin/env" }
      template {
        data        = <<EOT
# Where the database is.
HOST=db.example.com
GREETING="hello {{ env "WHO" }}"
EOT
        destination = "${NOMAD_SECRETS_DIR}/app.env"
        env         = true
      }
      env { WHO = "world" }
    }
  }
}
