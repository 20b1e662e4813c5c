# One form for each element of lists that go side by side.
# Ends: complete
# Prints: web:80 api:81
# Prints: http://a/ http://b/
job "formatted-lists" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/printf"
        args = [
          "%s\n",
          join(" ", formatlist("%s:%d", ["web", "api"], [80, 81])),
          join(" ", formatlist("http://%s%s", ["a", "b"], "/")),
        ]
      }
    }
  }
}
