# Arithmetic, with the precedence of its operators.
# Ends: complete
# Prints: A=7
# Prints: B=9
# Prints: C=1
# Prints: D=2.5
# Prints: E=5
# Prints: F=-3
# Prints: G=0.3
# Prints: H=-1
# Prints: I=1000000
job "sums" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/usr/bin/env" }
      env {
        A = 1 + 2 * 3
        B = (1 + 2) * 3
        C = 7 % 3
        D = 5 / 2
        E = 10 - 3 - 2
        F = -(1 + 2)
        G = 0.1 + 0.2
        H = -7 % 3
        I = 1e6
      }
    }
  }
}
