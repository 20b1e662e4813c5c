# Refused: a token of Vault.
job "vaulted" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      vault {
        policies = ["web"]
      }
    }
  }
}
