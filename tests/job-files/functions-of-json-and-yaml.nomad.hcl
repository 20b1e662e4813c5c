# JSON and YAML in both directions.
# Ends: complete
# Prints: A={"list":[1,"two",null],"map":{"deep":true}}
# Prints: B=two
# Prints: C=3
# Prints: D=x
# Prints: E=true
# Prints: F=\u003ca\u003e \u0026
job "documents" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/usr/bin/env" }
      env {
        A = jsonencode({ map = { deep = true }, list = [1, "two", null] })
        B = jsondecode("[1, \"two\"]")[1]
        C = yamldecode("list: [1, 2, 3]").list[2]
        D = yamldecode("a:\n  b: x\n").a.b
        E = yamldecode(yamlencode({ a = [true] })).a[0]
        F = jsondecode(jsonencode(jsonencode("<a> &"))) == jsonencode("<a> &") ? trim(jsonencode("<a> &"), "\"") : "wrong"
      }
    }
  }
}
