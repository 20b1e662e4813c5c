# New values for one allocation after the other.
# Ends: pending: comes from the gateway, and this agent has none
job "template-rolling" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      template {
        data        = "{{ key \"app/mode\" }}"
        destination = "local/mode"
        rolling     = true
      }
    }
  }
}
