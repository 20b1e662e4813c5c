# Durations added to a time, forwards and backwards.
# Ends: complete
# Prints: 2026-03-01T00:30:00Z
# Prints: 2026-02-27T23:59:59Z
# Prints: 2026-03-05T16:07:09+01:00
job "later" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/printf"
        args = [
          "%s\n",
          timeadd("2026-02-28T23:30:00Z", "1h"),
          timeadd("2026-02-28T00:00:00Z", "-1s"),
          timeadd("2026-03-05T14:07:09+01:00", "2h"),
        ]
      }
    }
  }
}
