# Maps with expressions as keys, in the place of blocks.
# Ends: complete
# Prints: computed=a
# Prints: plain=b
# Prints: NOMAD_META_m1=v1
locals { key = "computed" }
job "shaped" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/usr/bin/env" }
      env = {
        (local.key)  = "a"
        plain        = "b"
        "quoted-key" = "c"
      }
      meta = { for n in range(2) : "m${n}" => "v${n}" }
    }
  }
}
