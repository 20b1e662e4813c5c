# A token for the task, from the gateway that the node does not reach.
# Ends: pending: comes from the gateway, and this agent has none
job "known" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      identity {
        env  = true
        file = true
      }
    }
  }
}
