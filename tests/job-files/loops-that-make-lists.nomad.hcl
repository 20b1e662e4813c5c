# Loops that make lists: of lists, sets and maps, with an index, with a condition, within each other.
# Ends: complete
# Prints: A=0a,1b
# Prints: B=x=1,y=2
# Prints: C=b
# Prints: D=a1,a2,b1,b2
# Prints: E=p,q
job "lists" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/usr/bin/env" }
      env {
        A = join(",", [for i, v in ["a", "b"] : "${i}${v}"])
        B = join(",", [for k, v in { y = 2, x = 1 } : "${k}=${v}"])
        C = join(",", [for v in ["a", "b", "c"] : v if v == "b"])
        D = join(",", flatten([for l in ["a", "b"] : [for n in [1, 2] : "${l}${n}"]]))
        E = join(",", [for v in convert(["q", "p"], set(string)) : v])
      }
    }
  }
}
