# A table: the first line names the columns.
# Ends: complete
# Prints: web:80 api:81
# Prints: one, two
locals {
  table = csvdecode("name,port\nweb,80\napi,81\n")
}
job "tables" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/printf"
        args    = ["%s\n", join(" ", [for row in local.table : "${row.name}:${row.port}"]), csvdecode("a\n\"one, two\"")[0].a]
      }
    }
  }
}
