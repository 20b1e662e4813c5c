# Refused: links that another web interface shows.
# Ends: refused: 4
job "linked" {
  ui {
    description = "a shop"
    link {
      label = "wiki"
      url   = "https://example.com"
    }
  }
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
