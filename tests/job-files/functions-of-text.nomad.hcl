# Functions of text.
job "functions-of-text" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      env {
        A = upper("abc")
        B = lower("ABC")
        C = title("hello world")
        D = trimspace("  x  ")
        E = trim("..x..", ".")
        F = trimprefix("helloworld", "hello")
        G = trimsuffix("helloworld", "world")
        H = replace("1 + 2", "+", "-")
        I = replace("hello", "/l+/", "L")
        J = substr("hello", 1, 3)
        K = strrev("abc")
        L = join("-", ["a", "b"])
        M = split(",", "a,b,c")[1]
        N = format("%s-%03d", "x", 7)
        O = join(",", formatlist("%s!", ["a", "b"]))
        P = indent(2, "a\nb")
        Q = chomp("a\n")
        R = strlen("héllo")
      }
    }
  }
}
