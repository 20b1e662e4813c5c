# A driver that runs nothing, which nodes do not have.
# Ends: blocked: driver mock is missing or unhealthy
job "mocked" {
  group "g" {
    task "t" {
      driver = "mock"
      config {
        runFor   = "10s"
        exitCode = 1
      }
    }
  }
}
