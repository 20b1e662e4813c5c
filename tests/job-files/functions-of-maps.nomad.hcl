# Maps: keys and values in order, look-ups, and maps made of lists and of maps.
# Ends: complete
# Prints: keys a,b,c
# Prints: values 3,1,2
# Prints: lookup 1 none
# Prints: merge a=1,b=3,c=4
# Prints: zipmap x=1,y=2
# Prints: index 1
job "maps-of-values" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/printf"
        args = [
          "%s\n",
          "keys ${join(",", keys({ b = 1, c = 2, a = 3 }))}",
          "values ${join(",", values({ b = 1, c = 2, a = 3 }))}",
          "lookup ${lookup({ a = "1" }, "a", "none")} ${lookup({ a = "1" }, "b", "none")}",
          "merge ${join(",", [for k, v in merge({ a = 1, b = 2 }, { b = 3 }, { c = 4 }) : "${k}=${v}"])}",
          "zipmap ${join(",", [for k, v in zipmap(["x", "y"], [1, 2]) : "${k}=${v}"])}",
          "index ${index(convert({ a = 1 }, map(number)), "a")}",
        ]
      }
    }
  }
}
