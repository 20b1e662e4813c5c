# Patterns in text: groups by number and by name, and a replace that takes the pattern for text.
# Ends: complete
# Prints: b-a
# Prints: v1
# Prints: hello
# Prints: a.b.c
job "patterns" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/printf"
        args = [
          "%s\n",
          regex_replace("a-b", "([a-z])-([a-z])", "$2-$1"),
          regex_replace("version 1", "version (?P<n>[0-9])", "v$n"),
          replace("hello", "/l+/", "L"),
          replace("a,b,c", ",", "."),
        ]
      }
    }
  }
}
