# A tilde takes the space before or behind an interpolation or a directive away.
# Ends: complete
# Prints: A=ab
# Prints: B=a b
# Prints: C=[1][2]
# Prints: - one
# Prints: - two
# Prints: end
job "stripped" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/usr/bin/env" }
      env {
        A = "a  ${~ "b" ~}  "
        B = "a ${ "b" ~}   "
        C = "%{ for v in [1, 2] ~}  [${v}]  %{~ endfor }"
        D = <<EOT
start
%{ for v in ["one", "two"] ~}
- ${v}
%{ endfor ~}
end
EOT
      }
    }
  }
}
