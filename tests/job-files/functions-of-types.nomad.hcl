# Conversions, and what is done where one does not work.
# Ends: complete
# Prints: A=8
# Prints: B=5
# Prints: C=yes
# Prints: D=9
# Prints: E=false
# Prints: F=a
job "functions-of-types" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/usr/bin/env" }
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
