# Escapes: in quoted text, of interpolations and of directives.
# Ends: complete
# Prints: A=quote " slash \ tab [	]
# Prints: B=é and 😀
# Prints: C=%{literal}
# Prints: D=$NAME 100% $5 {x}
# Prints: second line
job "escapes" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/usr/bin/env" }
      env {
        A = "quote \" slash \\ tab [\t]"
        B = "\u00e9 and \U0001F600"
        C = "%%{literal}"
        D = "$NAME 100% $5 {x}"
        E = "first line\nsecond line"
      }
    }
  }
}
