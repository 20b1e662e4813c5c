# Functions of text, each once.
# Ends: complete
# Prints: upper ABC
# Prints: lower abc
# Prints: title Hello World
# Prints: trimspace [x]
# Prints: trim x
# Prints: trimprefix world
# Prints: trimsuffix hello
# Prints: replace 1 - 2
# Prints: regex_replace heLo
# Prints: substr ell
# Prints: strrev cba
# Prints: join a-b
# Prints: split b
# Prints: format x-007
# Prints: formatlist a!,b!
# Prints: chomp [a]
# Prints: strlen 5
# Prints: indent a|  b
job "functions-of-text" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/printf"
        args = [
          "%s\n",
          "upper ${upper("abc")}",
          "lower ${lower("ABC")}",
          "title ${title("hello world")}",
          "trimspace [${trimspace("  x  ")}]",
          "trim ${trim("..x..", ".")}",
          "trimprefix ${trimprefix("helloworld", "hello")}",
          "trimsuffix ${trimsuffix("helloworld", "world")}",
          "replace ${replace("1 + 2", "+", "-")}",
          "regex_replace ${regex_replace("hello", "l+", "L")}",
          "substr ${substr("hello", 1, 3)}",
          "strrev ${strrev("abc")}",
          "join ${join("-", ["a", "b"])}",
          "split ${split(",", "a,b,c")[1]}",
          "format ${format("%s-%03d", "x", 7)}",
          "formatlist ${join(",", formatlist("%s!", ["a", "b"]))}",
          "chomp [${chomp("a\n")}]",
          "strlen ${strlen("héllo")}",
          "indent ${replace(indent(2, "a\nb"), "\n", "|")}",
        ]
      }
    }
  }
}
