# Functions that read files beside the job file; older commands look where they are called.
# Ends: complete
# Prints: file hello from a file
# Prints: filebase64 b3RoZXIK
# Prints: fileexists true false
# Prints: fileset greeting.txt,other.txt
job "reads" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/printf"
        args = [
          "%s\n",
          "file ${chomp(file("files/greeting.txt"))}",
          "filebase64 ${filebase64("files/other.txt")}",
          "fileexists ${fileexists("files/greeting.txt")} ${fileexists("files/none.txt")}",
          "fileset ${join(",", fileset("files", "*.txt"))}",
        ]
      }
    }
  }
}
