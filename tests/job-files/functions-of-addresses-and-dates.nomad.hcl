# Functions of ranges of addresses and of dates.
# Ends: complete
# Prints: cidrhost 10.0.0.5
# Prints: cidrhost from the end 10.0.0.254
# Prints: cidrnetmask 255.255.240.0
# Prints: cidrsubnet 10.0.3.0/24
# Prints: cidrsubnets 10.0.0.0/20,10.0.16.0/20
# Prints: formatdate 2026-01-02
# Prints: timeadd 2026-01-02T04:04:05Z
job "functions-of-addresses-and-dates" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/printf"
        args = [
          "%s\n",
          "cidrhost ${cidrhost("10.0.0.0/24", 5)}",
          "cidrhost from the end ${cidrhost("10.0.0.0/24", -2)}",
          "cidrnetmask ${cidrnetmask("10.0.0.0/20")}",
          "cidrsubnet ${cidrsubnet("10.0.0.0/16", 8, 3)}",
          "cidrsubnets ${join(",", cidrsubnets("10.0.0.0/16", 4, 4))}",
          "formatdate ${formatdate("YYYY-MM-DD", "2026-01-02T03:04:05Z")}",
          "timeadd ${timeadd("2026-01-02T03:04:05Z", "1h")}",
        ]
      }
    }
  }
}
