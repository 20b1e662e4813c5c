# Sets: what is in one of them, in both of them, and all pairs.
# Ends: complete
# Prints: union 1,2,3
# Prints: intersection 2
# Prints: product a1 a2 b1 b2
# Prints: distinct a,b
job "sets-of-values" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/printf"
        args = [
          "%s\n",
          "union ${join(",", setunion([1, 2], [3, 2]))}",
          "intersection ${join(",", setintersection([1, 2], [3, 2], [2]))}",
          "product ${join(" ", [for p in setproduct(["a", "b"], [1, 2]) : join("", p)])}",
          "distinct ${join(",", distinct(["a", "b", "a"]))}",
        ]
      }
    }
  }
}
