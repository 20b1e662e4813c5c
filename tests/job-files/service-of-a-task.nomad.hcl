# A service of a task, whose name is made of what the job is.
# Ends: running
job "named-service" {
  group "g" {
    update { min_healthy_time = "0s" }
    network {
      port "http" { static = 21008 }
    }
    task "web" {
      driver       = "raw_exec"
      kill_timeout = "1s"
      config {
        command = "/bin/sleep"
        args    = ["1000"]
      }
      service {
        name = "${NOMAD_JOB_NAME}-${NOMAD_TASK_NAME}"
        port = "21008"
        tags = ["index-${NOMAD_ALLOC_INDEX}"]
      }
    }
  }
}
