# A server's configuration: values of the job in the text, what the task knows by the template.
# Ends: complete
# Prints: listen 127.0.0.1:21012
# Prints: upstream a.example.com:80
# Prints: upstream b.example.com:80
# Prints: allocation 0
locals { upstreams = ["a.example.com", "b.example.com"] }
job "proxy-settings" {
  type = "batch"
  group "g" {
    network {
      port "http" { static = 21012 }
    }
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/cat"
        args    = ["local/proxy.conf"]
      }
      template {
        destination = "local/proxy.conf"
        data        = <<EOT
listen {{ env "NOMAD_ADDR_http" }}
%{ for host in local.upstreams ~}
upstream ${host}:80
%{ endfor ~}
allocation {{ env "NOMAD_ALLOC_INDEX" }}
EOT
      }
    }
  }
}
