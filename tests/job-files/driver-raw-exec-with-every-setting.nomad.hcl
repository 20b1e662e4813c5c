# All settings of driver raw_exec.
# Ends: complete
# Prints: /tmp 500 denied=[] kept=[yes]
job "raw-settings" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command       = "/bin/sh"
        args          = ["-c", "echo $(pwd) $(cat /proc/self/oom_score_adj) denied=[$DENIED_ONE] kept=[$KEPT]"]
        workDir       = "/tmp"
        oomScoreAdj   = 500
        deniedEnvvars = ["DENIED_*"]
      }
      env {
        DENIED_ONE = "yes"
        KEPT       = "yes"
      }
    }
  }
}
