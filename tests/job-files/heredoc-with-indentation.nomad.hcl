# A heredoc whose lines lose the spaces that all of them begin with.
# Ends: complete
# Prints: name: web
# Prints:   port: 80
# Prints: end
job "indented" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/printf"
        args = ["%s", <<-YAML
          name: web
            port: 80
          end
          YAML
        ]
      }
    }
  }
}
