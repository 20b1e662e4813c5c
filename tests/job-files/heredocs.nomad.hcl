# Text over several lines, and references that stay for the node.
job "texts" {
  group "g" {
    task "t" {
      driver = "exec"
      config {
        command = "/bin/sh"
        args = ["-c", <<EOT
echo one
  echo ${NOMAD_ALLOC_INDEX} "two"
EOT
        , <<-EOT
          indented ${attr.unique.hostname}
            deeper
        EOT
        ]
      }
      env {
        ESCAPED = "tab\tquote\"unicode\u00e9 slash\\"
        LATER   = "${meta.later}-${node.unique.name}"
        SPACED  = "${ attr.kernel.name }"
      }
    }
  }
}
