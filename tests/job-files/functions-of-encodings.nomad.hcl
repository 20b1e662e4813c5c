# Encodings and digests.
job "functions-of-encodings" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      env {
        A = base64encode("hi")
        B = base64decode("aGk=")
        C = urlencode("a b&c")
        D = jsonencode({ a = [1, true] })
        E = jsondecode("{\"a\": \"b\"}").a
        F = yamldecode("a: b").a
        G = md5("x")
        H = sha1("x")
        I = sha256("x")
        J = sha512("x")
        K = csvdecode("a,b\n1,2")[0].b
        L = uuidv5("dns", "example.com")
      }
    }
  }
}
