# Logic and comparisons, with the precedence of their operators.
# Ends: complete
# Prints: A=true
# Prints: B=false
# Prints: C=true
# Prints: D=true
# Prints: E=false
# Prints: F=true
# Prints: G=false
# Prints: H=true
# Prints: I=true
job "logic" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/usr/bin/env" }
      env {
        A = true || false && false
        B = (true || false) && false
        C = !false && 1 < 2
        D = 2 >= 2 && 2 <= 2
        E = 1 > 2
        F = 1 + 1 == 2 && 3 != 4
        G = "1" == 1
        H = ["a", 1] == ["a", 1]
        I = { a = 1 } == { a = 1 }
      }
    }
  }
}
