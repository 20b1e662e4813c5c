# A heredoc in which a loop makes lines.
# Ends: complete
# Prints: server web:80
# Prints: server api:81
# Prints: backend ready
locals {
  servers = [{ name = "web", port = 80 }, { name = "api", port = 81 }]
}
job "lines" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/printf"
        args = ["%s", <<EOT
%{ for s in local.servers ~}
server ${s.name}:${s.port}
%{ endfor ~}
backend %{ if length(local.servers) > 0 }ready%{ else }empty%{ endif }
EOT
        ]
      }
    }
  }
}
