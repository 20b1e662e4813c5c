# Variables of every type: lists, sets, maps, objects with fields that may be left out, tuples.
# Ends: complete
# Prints: string web
# Prints: number 1.5
# Prints: bool true
# Prints: list b
# Prints: set a,b
# Prints: map 2
# Prints: object web 80
# Prints: tuple x 7
variable "string" {
  type    = string
  default = "web"
}
variable "number" {
  type    = number
  default = 1.5
}
variable "bool" {
  type    = bool
  default = true
}
variable "list" {
  type    = list(string)
  default = ["a", "b"]
}
variable "set" {
  type    = set(string)
  default = ["b", "a", "b"]
}
variable "map" {
  type    = map(number)
  default = { a = 1, b = 2 }
}
variable "object" {
  type    = object({ name = string, port = number })
  default = { name = "web", port = 80 }
}
variable "tuple" {
  type    = tuple([string, number])
  default = ["x", 7]
}
job "types-of-variables" {
  type = "batch"
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/usr/bin/printf"
        args = [
          "%s\n",
          "string ${var.string}",
          "number ${var.number}",
          "bool ${var.bool}",
          "list ${var.list[1]}",
          "set ${join(",", var.set)}",
          "map ${var.map["b"]}",
          "object ${var.object.name} ${var.object.port}",
          "tuple ${var.tuple[0]} ${var.tuple[1]}",
        ]
      }
    }
  }
}
