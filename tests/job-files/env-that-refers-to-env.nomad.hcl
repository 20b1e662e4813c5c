# Variables that refer to the node, to the task and to the host, in quotes and without.
# Ends: complete
# Prints: A=linux on n-1 in dc1
# Prints: B=default global
# Prints: C=environment g t 0
# Prints: D=/usr/bin
job "environment" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo A=$A; echo B=$B; echo C=$C; echo D=$D"]
      }
      env {
        A = "${attr.kernel.name} on ${node.unique.name} in ${node.datacenter}"
        B = "${NOMAD_NAMESPACE} ${NOMAD_REGION}"
        C = "${NOMAD_JOB_ID} ${NOMAD_GROUP_NAME} ${NOMAD_TASK_NAME} ${NOMAD_ALLOC_INDEX}"
        D = "/usr/bin"
      }
    }
  }
}
