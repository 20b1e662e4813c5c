# Functions of lists, sets and maps.
job "functions-of-collections" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      env {
        A = length(["a", "b"])
        B = element(["a", "b"], 3)
        C = index(["a", "b"], 1)
        D = contains(["a"], "a")
        E = join(",", concat(["a"], ["b"]))
        F = join(",", distinct(["a", "a", "b"]))
        H = join(",", slice(["a", "b", "c"], 1, 3))
        I = join(",", flatten([["a"], ["b", "c"]]))
        J = join(",", compact(["a", "", "b"]))
        K = join(",", sort(["b", "a"]))
        L = join(",", keys({ b = 1, a = 2 }))
        M = join(",", values({ b = "x", a = "y" }))
        N = lookup({ a = "1" }, "b", "none")
        O = merge({ a = "1" }, { a = "2" })["a"]
        P = zipmap(["a", "b"], ["1", "2"])["b"]
        Q = coalesce("", "x")
        R = join(",", range(3))
        S = join("|", [for pair in setproduct(["a"], ["b", "c"]) : join("", pair)])
        T = join(",", setunion(["a"], ["b"]))
        U = join(",", setintersection(["a", "b"], ["b"]))
        W = join(",", chunklist(["a", "b", "c"], 2)[0])
      }
    }
  }
}
