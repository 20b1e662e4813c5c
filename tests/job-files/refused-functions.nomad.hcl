# Refused: functions whose result would be a secret, or a path of the machine that reads the file.
# Ends: refused: 9, 10, 11, 12
job "refused-functions" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      env {
        A = bcrypt("secret", 4)
        B = rsadecrypt("c2VjcmV0", "key")
        C = abspath("files")
        D = pathexpand("~/files")
      }
    }
  }
}
