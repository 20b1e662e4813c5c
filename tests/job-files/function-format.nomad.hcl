# The verbs of format: text, numbers of every base, widths, flags, and any value.
# Ends: complete
# Prints: A=a|    b|c    |d
# Prints: B=42|00042|+42|   42
# Prints: C=101010|52|2a|2A
# Prints: D=3.14|3.141593|  3.1
# Prints: E=true "quoted" 100%
# Prints: F=web 7 true null
# Prints: G=["a",1] {"k":"v"}
# Prints: H=two one
job "formats" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/usr/bin/env" }
      env {
        A = format("%s|%5s|%-5s|%.1s", "a", "b", "c", "def")
        B = format("%d|%05d|%+d|%5d", 42, 42, 42, 42)
        C = format("%b|%o|%x|%X", 42, 42, 42, 42)
        D = format("%.2f|%f|%5.1f", 3.14159265, 3.14159265, 3.14159265)
        E = format("%t %q 100%%", true, "quoted")
        F = format("%v %v %v %v", "web", 7, true, null)
        G = format("%#v %#v", ["a", 1], { k = "v" })
        H = format("%[2]s %[1]s", "one", "two")
      }
    }
  }
}
