# Secrets and a ConfigMap in variables of the task, which no gateway brings here.
# Ends: pending: comes from the gateway, and this agent has none
job "secret-variable" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      secret "db" {
        provider = "nomad"
        path     = "db-creds"
      }
      secret "tls" {
        provider = "kubernetes"
        path     = "web-tls"
      }
      secret "app" {
        provider = "configmap"
        path     = "app"
      }
      env {
        PASSWORD = "${secret.db.password}"
        MODE     = "${secret.app.mode}"
      }
    }
  }
}
