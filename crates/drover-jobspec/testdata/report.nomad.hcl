# A batch job without groups, launched by time.
job "Report" {
  type = "batch"
  periodic {
    cron             = "15 3 * * *"
    time_zone        = "Europe/Berlin"
    prohibit_overlap = true
  }
  task "make" {
    driver = "raw_exec"
    config = {
      command = "/bin/sh"
      args    = ["-c", "date"]
    }
    logs {
      max_files     = 2
      max_file_size = 5
    }
  }
}
