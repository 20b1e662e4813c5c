# Lists: parts, pieces, order, and what is left out.
# Ends: complete
# Prints: element a
# Prints: slice b
# Prints: chunklist a,b|c,d|e
# Prints: flatten 1,2,3,4
# Prints: compact a,b
# Prints: sort 10,9,a
# Prints: concat a,b,c
# Prints: contains true false
# Prints: coalescelist c
# Prints: length 0 2 3
job "lists-of-values" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/printf"
        args = [
          "%s\n",
          "element ${element(["a", "b", "c"], 3)}",
          "slice ${join(",", slice(["a", "b", "c"], 1, 2))}",
          "chunklist ${join("|", [for part in chunklist(["a", "b", "c", "d", "e"], 2) : join(",", part)])}",
          "flatten ${join(",", flatten([1, [2, [3]], [], [[4]]]))}",
          "compact ${join(",", compact(["", "a", "", "b"]))}",
          "sort ${join(",", sort(["a", "9", "10"]))}",
          "concat ${join(",", concat(["a"], [], ["b", "c"]))}",
          "contains ${contains(["a", "b"], "b")} ${contains(["a", "b"], "c")}",
          "coalescelist ${join(",", coalescelist([], [], ["c"]))}",
          "length ${length([])} ${length(["a", "b"])} ${length(convert({ a = 1, b = 2, c = 3 }, map(number)))}",
        ]
      }
    }
  }
}
