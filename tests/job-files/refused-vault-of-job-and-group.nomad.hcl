# Refused: tokens of Vault, of the job and of a group.
# Ends: refused: 4, 6, 8
job "vaulted-job" {
  vault {}
  # The token itself.
  vault_token = "hvs.1"
  group "g" {
    vault {}
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
