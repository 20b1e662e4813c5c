# Text for the query of an address.
# Ends: complete
# Prints: a+b%26c%3Dd%2Fe%3F%C3%BC-_.~
job "queries" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args    = [urlencode("a b&c=d/e?ü-_.~")]
      }
    }
  }
}
