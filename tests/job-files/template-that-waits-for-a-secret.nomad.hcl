# A template that looks at a Secret, which no gateway brings here.
# Ends: pending: comes from the gateway, and this agent has none
job "template-secret" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      template {
        data        = "{{ with secret \"db-creds\" }}{{ .Data.password }}{{ end }}"
        destination = "secrets/password"
      }
    }
  }
}
