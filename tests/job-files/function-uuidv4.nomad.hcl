# An id that is another one at each reading: only its form is known.
# Ends: complete
# Prints: a UUID of 36 letters
locals { id = uuidv4() }
job "ids" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = ["a UUID of ${strlen(local.id)} letters"]
      }
    }
  }
}
