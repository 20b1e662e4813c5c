# Tokens for others: whom they are for, how long they count, where they are, and what follows on a new one.
# Ends: pending: comes from the gateway, and this agent has none
job "identified" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      identity {
        name          = "vault"
        aud           = ["vault.example.com"]
        file          = true
        filepath      = "local/vault.jwt"
        ttl           = "1h"
        change_mode   = "signal"
        change_signal = "SIGHUP"
        extra_claims  = { team = "shop" }
      }
      identity {
        name        = "other"
        aud         = ["a", "b"]
        env         = true
        ttl         = "30m"
        change_mode = "restart"
      }
      identity {
        name        = "third"
        file        = true
        change_mode = "noop"
      }
    }
  }
}
