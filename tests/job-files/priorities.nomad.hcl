# The lowest priority; a job of a higher one may take its place.
# Ends: complete
job "humble" {
  type     = "batch"
  priority = 1
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/bin/true" }
    }
  }
}
