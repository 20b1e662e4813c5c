# Every part of a time, and text between quotes.
# Ends: complete
# Prints: A=2026 26 | March Mar 03 3 | 05 5 | Thursday Thu
# Prints: B=14 14 02 2 PM pm
# Prints: C=07:07 7 | 09 9
# Prints: D=Z UTC
# Prints: E=+01:00
# Prints: F=at 14 o'clock
locals {
  time  = "2026-03-05T14:07:09Z"
  local = "2026-03-05T14:07:09+01:00"
}
job "dates" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/usr/bin/env" }
      env {
        A = formatdate("YYYY YY | MMMM MMM MM M | DD D | EEEE EEE", local.time)
        B = formatdate("hh h HH H AA aa", local.time)
        C = formatdate("mm:mm m | ss s", local.time)
        D = formatdate("Z ZZZ", local.time)
        E = formatdate("ZZZZZ", local.local)
        F = formatdate("'at' hh 'o''clock'", local.time)
      }
    }
  }
}
