# A datacenter that no node is in.
# Ends: blocked: no ready node of pool default is in the job's datacenters
job "far" {
  datacenters = ["mars-1"]
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
