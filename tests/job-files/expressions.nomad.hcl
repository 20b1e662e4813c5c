# Conditions, loops, splats and directives.
job "expressions" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
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
        K = "$${literal} and %%{literal}"
        L = join(",", [for g, v in { for w in ["ab", "ac", "bd"] : substr(w, 0, 1) => w... } : "${g}${length(v)}"])
      }
    }
  }
}
