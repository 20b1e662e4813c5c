# Refused: a token of Vault.
# Ends: refused: 8
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
