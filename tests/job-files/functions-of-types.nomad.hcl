# Types, and what cannot be done.
job "functions-of-types" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      env {
        A = convert("7", number) + 1
        B = convert(5, string)
        C = convert("true", bool) ? "yes" : "no"
        D = try(convert("x", number), 9)
        E = can(convert("x", number))
        F = join(",", convert(["a", "a"], set(string)))
      }
    }
  }
}
