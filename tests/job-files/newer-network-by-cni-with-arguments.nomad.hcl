# A network of CNI by a block, with arguments for its plugins.
# Ends: blocked: network mode cni/backbone is missing
job "by-cni-with-arguments" {
  group "g" {
    network {
      mode = "cni"
      cni {
        name = "backbone"
        args = { tier = "front" }
      }
    }
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
    }
  }
}
