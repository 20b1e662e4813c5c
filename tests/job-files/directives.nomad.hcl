# Directives in text: conditions and loops, with and without an index.
# Ends: complete
# Prints: A=on
# Prints: B=off
# Prints: C=only
# Prints: D=[a][b]
# Prints: E=0:a 1:b.
# Prints: F=x=1;y=2;
job "directed" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/usr/bin/env" }
      env {
        A = "%{ if 1 < 2 }on%{ else }off%{ endif }"
        B = "%{ if 1 > 2 }on%{ else }off%{ endif }"
        C = "%{ if true }only%{ endif }"
        D = "%{ for v in ["a", "b"] }[${v}]%{ endfor }"
        E = "%{ for i, v in ["a", "b"] }${i}:${v}%{ if i == 0 } %{ else }.%{ endif }%{ endfor }"
        F = "%{ for k, v in { y = 2, x = 1 } }${k}=${v};%{ endfor }"
      }
    }
  }
}
