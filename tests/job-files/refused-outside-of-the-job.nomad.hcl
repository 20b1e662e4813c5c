# Refused: attributes and blocks beside the job.
# Ends: refused: 3, 4
datacenters = ["dc1"]
group "g" {
  task "t" {
    driver = "exec"
    config { command = "/bin/true" }
  }
}
job "beside" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
