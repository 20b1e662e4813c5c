# What the node fills in: its attributes, and what the task is.
# Ends: complete
# Prints: hello world! linux dc1
job "filled" {
  type = "batch"
  meta { greeting = "hello" }
  group "g" {
    meta { name = "world" }
    task "t" {
      driver = "exec"
      meta { mark = "!" }
      config {
        command = "/bin/echo"
        args = [
          "${NOMAD_META_greeting} ${NOMAD_META_name}${NOMAD_META_mark}",
          "${attr.kernel.name}", "${node.datacenter}",
        ]
      }
    }
  }
}
