# Files from elsewhere.
job "fetched" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "local/bin/server" }
      artifact {
        source      = "https://example.com/server-${attr.cpu.arch}.tgz"
        destination = "local/bin"
        mode        = "any"
        options {
          checksum = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        }
        headers {
          X-Team = "shop"
        }
      }
      artifact {
        source      = "https://example.com/settings.json"
        destination = "local/settings.json"
        mode        = "file"
      }
    }
  }
}
