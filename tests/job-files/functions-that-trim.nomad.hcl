# Space and other letters taken off the ends of a text, and lines that are set in.
# Ends: complete
# Prints: [a b] [b] [a/] [/a] [a] [a]
# Prints: 1: x
# Prints:     y
job "trimmed" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/printf"
        args = [
          "%s\n",
          "[${trimspace("\t a b \n")}] [${trim("aba", "a")}] [${trimprefix("/a/", "/")}] [${trimsuffix("/a/", "/")}] [${chomp("a\r\n")}] [${chomp("a\n\n")}]",
          "1: ${indent(4, "x\ny")}",
        ]
      }
    }
  }
}
