# Functions that came later, or that drover has beside Nomad's.
# Ends: complete
# Prints: startswith true
# Prints: endswith false
# Prints: strcontains true
# Prints: sum 6
# Prints: int 2
# Prints: reverse c,b,a
# Prints: reverselist b,a
# Prints: regex 42
# Prints: regex groups a-b
# Prints: regex names b
# Prints: regexall 1,22,333
# Prints: setsubtract a
# Prints: sethaselement true
job "newer-functions" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/printf"
        args = [
          "%s\n",
          "startswith ${startswith("hello", "he")}",
          "endswith ${endswith("hello", "he")}",
          "strcontains ${strcontains("hello", "ell")}",
          "sum ${sum([1, 2, 3])}",
          "int ${int(2.9)}",
          "reverse ${join(",", reverse(["a", "b", "c"]))}",
          "reverselist ${join(",", reverselist(["a", "b"]))}",
          "regex ${regex("[0-9]+", "port 42")}",
          "regex groups ${join("-", regex("(a)(b)", "ab"))}",
          "regex names ${regex("(?P<first>a)(?P<second>b)", "ab").second}",
          "regexall ${join(",", regexall("[0-9]+", "1 22 333"))}",
          "setsubtract ${join(",", setsubtract(["a", "b"], ["b"]))}",
          "sethaselement ${sethaselement(["a"], "a")}",
        ]
      }
    }
  }
}
