# Whose file a template becomes, and who may read it.
# Ends: complete
# Prints: 640 1 2
# Prints: 444
job "template-rights" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "stat -c '%a %u %g' local/owned; stat -c %a local/read"]
      }
      template {
        data        = "x"
        destination = "local/owned"
        perms       = "640"
        uid         = 1
        gid         = 2
      }
      template {
        data        = "x"
        destination = "local/read"
        perms       = "0444"
      }
    }
  }
}
