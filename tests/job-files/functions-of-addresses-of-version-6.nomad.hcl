# Ranges of IPv6, and parts of several sizes.
# Ends: complete
# Prints: fd00::10
# Prints: fd00:0:0:2::/64
# Prints: 10.1.0.0/20,10.1.16.0/24,10.1.32.0/20
# Prints: 255.255.255.240
job "ranges-of-addresses" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/printf"
        args = [
          "%s\n",
          cidrhost("fd00::/64", 16),
          cidrsubnet("fd00::/48", 16, 2),
          join(",", cidrsubnets("10.1.0.0/16", 4, 8, 4)),
          cidrnetmask("192.168.1.0/28"),
        ]
      }
    }
  }
}
