# Functions of numbers.
job "functions-of-numbers" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      env {
        A = abs(-3)
        B = ceil(1.2)
        C = floor(1.8)
        D = max(1, 5, 3)
        E = min(4, 2)
        F = pow(2, 8)
        G = signum(-4)
        H = log(8, 2)
        I = parseint("ff", 16)
        J = 7 % 3
        K = (1 + 2) * 3 - 4 / 2
        L = -5 + 10
      }
    }
  }
}
