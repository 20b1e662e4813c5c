# Loops, conditions and functions in a template.
# Ends: complete
# Prints: a=1 b=2
# Prints: WEB 3 yes
job "template-language" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "exec"
      config {
        command = "/bin/cat"
        args    = ["local/out"]
      }
      template {
        data        = <<EOT
{{ range $i, $v := "a,b" | split "," }}{{ if $i }} {{ end }}{{ $v }}={{ add $i 1 }}{{ end }}
{{ "web" | toUpper }} {{ add 1 2 }} {{ if eq (env "NOMAD_GROUP_NAME") "g" }}yes{{ else }}no{{ end }}
EOT
        destination = "local/out"
      }
    }
  }
}
