# Functions of lists, sets and maps, each once.
# Ends: complete
# Prints: length 2
# Prints: element b
# Prints: index b
# Prints: contains true
# Prints: concat a,b
# Prints: distinct a,b
# Prints: slice b,c
# Prints: flatten a,b,c
# Prints: compact a,b
# Prints: sort a,b
# Prints: keys a,b
# Prints: values y,x
# Prints: lookup none
# Prints: merge 2
# Prints: zipmap 2
# Prints: coalesce x
# Prints: coalescelist x
# Prints: range 0,1,2
# Prints: setproduct ab|ac
# Prints: setunion a,b
# Prints: setintersection b
# Prints: chunklist a,b
# Prints: reverse cba
job "functions-of-collections" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/printf"
        args = [
          "%s\n",
          "length ${length(["a", "b"])}",
          "element ${element(["a", "b"], 3)}",
          "index ${index(["a", "b"], 1)}",
          "contains ${contains(["a"], "a")}",
          "concat ${join(",", concat(["a"], ["b"]))}",
          "distinct ${join(",", distinct(["a", "a", "b"]))}",
          "slice ${join(",", slice(["a", "b", "c"], 1, 3))}",
          "flatten ${join(",", flatten([["a"], ["b", "c"]]))}",
          "compact ${join(",", compact(["a", "", "b"]))}",
          "sort ${join(",", sort(["b", "a"]))}",
          "keys ${join(",", keys({ b = 1, a = 2 }))}",
          "values ${join(",", values({ b = "x", a = "y" }))}",
          "lookup ${lookup({ a = "1" }, "b", "none")}",
          "merge ${merge({ a = "1" }, { a = "2" })["a"]}",
          "zipmap ${zipmap(["a", "b"], ["1", "2"])["b"]}",
          "coalesce ${coalesce(null, "x", "y")}",
          "coalescelist ${join(",", coalescelist([], ["x"]))}",
          "range ${join(",", range(3))}",
          "setproduct ${join("|", [for pair in setproduct(["a"], ["b", "c"]) : join("", pair)])}",
          "setunion ${join(",", setunion(["a"], ["b"]))}",
          "setintersection ${join(",", setintersection(["a", "b"], ["b"]))}",
          "chunklist ${join(",", chunklist(["a", "b", "c"], 2)[0])}",
          "reverse ${reverse("abc")}",
        ]
      }
    }
  }
}
