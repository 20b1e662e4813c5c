# Verbs and flags of format as Go has them, and numbers as HCL writes them.
# Ends: complete
# Prints: A=1e-05 1e+21 1e+21
# Prints: B= 5 0xff
# Prints: C="\u003c"
# Prints: D=true|
# Prints: E=123456789012345678901234567890
job "number-formats" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/usr/bin/env" }
      env {
        A = format("%g %g %v", 0.00001, 1e21, 1e21)
        B = format("% d %#x", 5, 255)
        C = format("%q", "<")
        D = format("%5t|", true)
        E = 123456789012345678901234567890
      }
    }
  }
}
