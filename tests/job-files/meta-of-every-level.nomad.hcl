# Meta of the job, of the group and of the task: the nearest wins.
# Ends: complete
# Prints: job group task
# Prints: task
# Prints: dashed
job "meta-levels" {
  type = "batch"
  meta {
    a    = "job"
    b    = "job"
    near = "job"
  }
  group "g" {
    meta {
      b    = "group"
      near = "group"
    }
    task "t" {
      driver = "raw_exec"
      meta = {
        c          = "task"
        near       = "task"
        "my-dash" = "dashed"
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "echo ${NOMAD_META_a} ${NOMAD_META_b} $NOMAD_META_c; echo $NOMAD_META_NEAR; echo $NOMAD_META_my_dash"]
      }
    }
  }
}
