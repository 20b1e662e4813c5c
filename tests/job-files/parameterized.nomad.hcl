# Dispatched with a payload; by itself nothing runs.
# Ends: waits
job "mails" {
  type = "batch"
  parameterized {
    payload       = "required"
    meta_required = ["to"]
    meta_optional = ["subject", "cc"]
  }
  group "g" {
    task "t" {
      driver = "exec"
      config {
        command = "/bin/cat"
        args    = ["local/mail.txt"]
      }
      dispatch_payload { file = "mail.txt" }
    }
  }
}
