# A token of a ServiceAccount of the cluster.
# Ends: pending: comes from the gateway, and this agent has none
job "account" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      identity {
        name = "aws"
        aud  = ["sts.amazonaws.com"]
        file = true
        ttl  = "1h"
        kubernetes { service_account = "web" }
      }
    }
  }
}
