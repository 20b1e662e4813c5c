# Functions of numbers, each once.
# Ends: complete
# Prints: abs 3
# Prints: ceil 2
# Prints: floor 1
# Prints: max 5
# Prints: min 2
# Prints: pow 256
# Prints: signum -1
# Prints: log 3
# Prints: parseint 255
job "functions-of-numbers" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/printf"
        args = [
          "%s\n",
          "abs ${abs(-3)}",
          "ceil ${ceil(1.2)}",
          "floor ${floor(1.8)}",
          "max ${max(1, 5, 3)}",
          "min ${min(4, 2)}",
          "pow ${pow(2, 8)}",
          "signum ${signum(-4)}",
          "log ${log(8, 2)}",
          "parseint ${parseint("ff", 16)}",
        ]
      }
    }
  }
}
