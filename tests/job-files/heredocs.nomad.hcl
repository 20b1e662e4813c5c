# Text over several lines, and references that stay for the node.
# Ends: complete
# Prints: one
# Prints: 0 two
# Prints: deeper
# Prints:   linux
# Prints: linux
job "texts" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "exec"
      config {
        command = "/bin/sh"
        args = ["-c", <<EOT
echo one
  echo ${NOMAD_ALLOC_INDEX} "two"
echo "$1"
echo "$SPACED"
EOT
        , "name", <<-EOT
          deeper
            ${attr.kernel.name}
        EOT
        ]
      }
      env {
        ESCAPED = "tab\tquote\"unicode\u00e9 slash\\"
        SPACED  = "${ attr.kernel.name }"
      }
    }
  }
}
