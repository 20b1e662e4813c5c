# Maps with expressions as keys.
locals { key = "computed" }
job "shaped" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      env = {
        (local.key)  = "a"
        plain        = "b"
        "quoted-key" = "c"
      }
      meta = { for n in range(2) : "m${n}" => "v${n}" }
    }
  }
}
