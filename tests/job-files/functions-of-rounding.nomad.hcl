# Numbers: rounded, of both signs, powers, logarithms and bases.
# Ends: complete
# Prints: ceil 2 -1 5
# Prints: floor 1 -2 5
# Prints: abs 2.5 2.5
# Prints: signum -1 0 1
# Prints: pow 0.5 1
# Prints: log 2
# Prints: parseint 255 5 35
# Prints: max 2.5 min -3
job "numbers" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/printf"
        args = [
          "%s\n",
          "ceil ${ceil(1.1)} ${ceil(-1.9)} ${ceil(5)}",
          "floor ${floor(1.9)} ${floor(-1.1)} ${floor(5)}",
          "abs ${abs(-2.5)} ${abs(2.5)}",
          "signum ${signum(-3)} ${signum(0)} ${signum(9)}",
          "pow ${pow(2, -1)} ${pow(7, 0)}",
          "log ${log(100, 10)}",
          "parseint ${parseint("FF", 16)} ${parseint("101", 2)} ${parseint("z", 36)}",
          "max ${max(1, 2.5)} min ${min(0, -3)}",
        ]
      }
    }
  }
}
