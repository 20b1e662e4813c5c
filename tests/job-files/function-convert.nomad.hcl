# Values as other types: numbers, text, lists, sets, maps and objects.
# Ends: complete
# Prints: A=3
# Prints: B=17
# Prints: C=1,2
# Prints: D=2
# Prints: E=1
# Prints: F=7x
job "conversions" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/usr/bin/env" }
      env {
        A = convert("1", number) + convert("2", number)
        B = "${convert(1, string)}${convert(7, string)}"
        C = join(",", convert([1, 2], list(string)))
        D = length(convert(["a", "b", "a"], set(string)))
        E = convert({ a = "1" }, map(number)).a
        F = convert({ n = "7", more = true }, object({ n = number })).n == 7 ? "7x" : "wrong"
      }
    }
  }
}
