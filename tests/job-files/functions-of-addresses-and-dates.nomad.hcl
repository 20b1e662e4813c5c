# Addresses and dates.
job "functions-of-addresses-and-dates" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      env {
        A = cidrhost("10.0.0.0/24", 5)
        B = cidrnetmask("10.0.0.0/20")
        C = cidrsubnet("10.0.0.0/16", 8, 3)
        D = join(",", cidrsubnets("10.0.0.0/16", 4, 4))
        E = formatdate("YYYY-MM-DD", "2026-01-02T03:04:05Z")
        F = timeadd("2026-01-02T03:04:05Z", "1h")
      }
    }
  }
}
