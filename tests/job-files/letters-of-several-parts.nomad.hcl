# A letter that a reader sees counts once, whatever it is made of.
# Ends: complete
# Prints: 1 👨‍👩‍👧 x👨‍👩‍👧
locals { family = "👨‍👩‍👧" }
job "letters" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = ["${strlen(local.family)} ${substr(local.family, 0, 1)} ${strrev("${local.family}x")}"]
      }
    }
  }
}
