# In a loop over a set the key is the value.
# Ends: complete
# Prints: A=a=a,b=b
# Prints: B=aabb
# Prints: C=1
locals {
  set = convert(["b", "a", "b"], set(string))
}
job "loops-over-sets" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/usr/bin/env" }
      env {
        A = join(",", [for k, v in local.set : "${k}=${v}"])
        B = "%{ for k, v in local.set }${k}${v}%{ endfor }"
        C = length(distinct([1, "1", 1]))
      }
    }
  }
}
