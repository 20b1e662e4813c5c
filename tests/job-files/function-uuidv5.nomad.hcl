# Ids that follow from a name: in the four well-known spaces, and in one of its own.
# Ends: complete
# Prints: 886313e1-3b8a-5372-9b90-0c9aee199e5d
# Prints: 0a300ee9-f9e4-5697-a51a-efc7fafaba67
# Prints: 4c565f0d-3f5a-5890-b41b-20cf47701c5e
job "names" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/printf"
        args = [
          "%s\n",
          uuidv5("dns", "python.org"),
          uuidv5("url", "http://example.com/"),
          uuidv5("6ba7b811-9dad-11d1-80b4-00c04fd430c8", "http://python.org/"),
        ]
      }
    }
  }
}
