# Labels without quotes, keys with them, colons in the place of equal signs.
# Ends: complete
# Prints: with space and colon
job labels {
  type = "batch"
  group g {
    task t {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = [{ "with space" : "with space", colon : "and colon" }["with space"], { colon : "and colon" }.colon]
      }
      meta = {
        "quoted.key" = "a"
        colon : "b"
      }
    }
  }
}
