# Parts of a text: from the end, to the end, and letters that have several bytes.
# Ends: complete
# Prints: [ell] [llo] [lo] [] [ö]
job "parts" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/echo"
        args = [
          "[${substr("hello", 1, 3)}] [${substr("hello", 2, -1)}] [${substr("hello", -2, 2)}] [${substr("hello", 0, 0)}] [${substr("größe", 2, 1)}]",
        ]
      }
    }
  }
}
