# Ranges of numbers: to an end, from a start, with a step, downwards.
# Ends: complete
# Prints: 0,1,2 1,2,3 0,5,10 3,2,1
job "ranges" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args = [
          join(",", range(3)), join(",", range(1, 4)), join(",", range(0, 15, 5)), join(",", range(3, 0)),
        ]
      }
    }
  }
}
