# Encodings and identifiers.
# Ends: complete
# Prints: base64encode aGk=
# Prints: base64decode hi
# Prints: urlencode a+b%26c
# Prints: jsonencode {"a":[1,true]}
# Prints: jsondecode b
# Prints: yamldecode b
# Prints: csvdecode 2
# Prints: uuidv5 cfbff0d1-9375-5685-968c-48ce8b15ae17
job "functions-of-encodings" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/printf"
        args = [
          "%s\n",
          "base64encode ${base64encode("hi")}",
          "base64decode ${base64decode("aGk=")}",
          "urlencode ${urlencode("a b&c")}",
          "jsonencode ${jsonencode({ a = [1, true] })}",
          "jsondecode ${jsondecode("{\"a\": \"b\"}").a}",
          "yamldecode ${yamldecode("a: b").a}",
          "csvdecode ${csvdecode("a,b\n1,2")[0].b}",
          "uuidv5 ${uuidv5("dns", "example.com")}",
        ]
      }
    }
  }
}
