# Refused: kinds of a mesh, scaling of one task, and a schedule of one task.
# Ends: refused: 8, 9, 13
job "refused-tasks" {
  group "g" {
    task "t" {
      driver = "exec"
      config { command = "/bin/true" }
      kind = "connect-proxy:web"
      scaling "cpu" {
        enabled = true
        max     = 100
      }
      schedule {
        cron {
          start = "0 0 8 * * *"
          end   = "0 18"
        }
      }
    }
  }
}
