# Conditions, loops, splats and directives, one of each.
# Ends: complete
# Prints: A=a
# Prints: B=A,B
# Prints: C=y2
# Prints: D=B
# Prints: E=p,q
# Prints: F=on
# Prints: G=<1><2>
# Prints: H=true
# Prints: I=true
# Prints: J=ab
# Prints: K=%{literal}
# Prints: L=a2,b1
job "expressions" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/usr/bin/env" }
      env {
        A = true ? "a" : "b"
        B = join(",", [for v in ["a", "b"] : upper(v)])
        C = join(",", [for k, v in { x = 1, y = 2 } : "${k}${v}" if v > 1])
        D = { for k in ["a", "b"] : k => upper(k) }["b"]
        E = join(",", [{ n = "p" }, { n = "q" }][*].n)
        F = "%{ if true }on%{ else }off%{ endif }"
        G = "%{ for v in [1, 2] }<${v}>%{ endfor }"
        H = 1 == 1 && !(2 < 1) || false
        I = "a" != "b"
        J = "${"a"}${"b"}"
        K = "%%{literal}"
        L = join(",", [for g, v in { for w in ["ab", "ac", "bd"] : substr(w, 0, 1) => w... } : "${g}${length(v)}"])
      }
    }
  }
}
