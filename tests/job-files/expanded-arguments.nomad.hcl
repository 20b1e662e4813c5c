# A list whose elements become the arguments of a function.
# Ends: complete
# Prints: max 9
# Prints: a-b
# Prints: a,b,c
locals {
  numbers = [4, 9, 2]
  words   = ["%s-%s", "a", "b"]
  lists   = [["a"], ["b", "c"]]
}
job "expanded" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/printf"
        args    = ["%s\n", "max ${max(local.numbers...)}", format(local.words...), join(",", concat(local.lists...))]
      }
    }
  }
}
