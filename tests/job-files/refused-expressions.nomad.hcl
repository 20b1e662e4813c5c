# Refused: expressions without a value, each where it stands.
# Ends: refused: 9, 10, 11, 12, 13, 14, 15
job "refused-expressions" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      env {
        A = 1 / 0
        B = var.none
        C = local.none
        D = upper("a", "b")
        E = nothing("a")
        F = ["a"][3]
        G = { a = 1 }.b
      }
    }
  }
}
