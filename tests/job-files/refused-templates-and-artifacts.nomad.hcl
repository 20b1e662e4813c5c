# Refused: Vault's time in a template, and an artifact whose certificate is not checked.
# Ends: refused: 11, 15
job "refused-files" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      template {
        data        = "x"
        destination = "local/x"
        vault_grace = "15s"
      }
      artifact {
        source   = "https://example.com/x"
        insecure = true
      }
    }
  }
}
