# Digests of a text.
# Ends: complete
# Prints: 900150983cd24fb0d6963f7d28e17f72
# Prints: a9993e364706816aba3e25717850c26c9cd0d89d
# Prints: ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad
# Prints: ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f
job "digests" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/printf"
        args    = ["%s\n", md5("abc"), sha1("abc"), sha256("abc"), sha512("abc")]
      }
    }
  }
}
