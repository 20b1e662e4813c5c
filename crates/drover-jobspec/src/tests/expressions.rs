//! Values of expressions, of variables and of `dynamic` blocks.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{Files, Inputs, manifests};

/// The values of expressions, by name.
fn values(expressions: &[(&str, &str)], inputs: &Inputs<'_>, before: &str) -> Result<Value, Vec<String>> {
    // In lists: a map that an attribute has would become one.
    let lines: Vec<String> = expressions.iter().map(|(name, text)| format!("      {name} =[{text}]\n")).collect();
    let lines = lines.concat();
    let text = format!(
        "{before}\njob \"j\" {{\n  group \"g\" {{\n    task \"t\" {{\n      driver = \"exec\"\n      config {{\n{lines}      }}\n    }}\n  }}\n}}\n"
    );
    let found = manifests("j.hcl", &text, inputs)
        .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    let config = found[0]["spec"]["groups"][0]["tasks"][0]["config"].as_object().expect("an object");
    Ok(config.iter().map(|(name, list)| (name.clone(), list[0].clone())).collect())
}

fn check(cases: &[(&str, Value)]) {
    let named: Vec<(String, &str)> =
        cases.iter().enumerate().map(|(at, (text, _))| (format!("c{at}"), *text)).collect();
    let pairs: Vec<(&str, &str)> = named.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    let found = values(&pairs, &Inputs::default(), "").unwrap_or_else(|faults| panic!("{faults:#?}"));
    for ((name, text), (_, expected)) in pairs.iter().zip(cases) {
        assert_eq!(&found[*name], expected, "{text}");
    }
}

#[test]
fn operators_and_conversions() {
    check(&[
        ("1 + 2 * 3", json!(7)),
        ("\"1\" + 1", json!(2)),
        ("7 / 2", json!(3.5)),
        ("6 / 2", json!(3)),
        ("-7 % 3", json!(-1)),
        ("1 == \"1\"", json!(false)),
        ("!false && 2 >= 2 || false", json!(true)),
        ("true ? \"a\" : \"b\"", json!("a")),
        ("\"a${1}b${true}\"", json!("a1btrue")),
        ("\"${[1, 2]}\"", json!([1, 2])),
        ("[for k, v in {b = 2, a = 1} : \"${k}${v}\" if v > 0]", json!(["a1", "b2"])),
        ("{for s in [\"x\", \"yy\"] : s => strlen(s)}", json!({"x": 1, "yy": 2})),
        ("{for s in [\"x\", \"y\", \"zz\"] : strlen(s) => s...}", json!({"1": ["x", "y"], "2": ["zz"]})),
        ("[{a = 1}, {a = 2}][*].a", json!([1, 2])),
        ("[{a = 1}, {a = 2}].*.a", json!([1, 2])),
        ("{a = [1, 2]}[\"a\"][1]", json!(2)),
        ("\"%{ if true ~}  yes  %{~ else ~}no%{ endif }\"", json!("yes")),
        ("\"%{ for i, x in [\"a\", \"b\"] }${i}${x};%{ endfor }\"", json!("0a;1b;")),
        ("<<EOT\na\n  b\nEOT\n", json!("a\n  b\n")),
        ("<<-EOT\n  a\n    b\n  EOT\n", json!("a\n  b\n")),
        (
            "<<-EOT\n  a\n  %{ for x in [1, 2] ~}\n  b = ${x}\n  %{ endfor ~}\n  c\n  EOT\n",
            json!("a\n  b = 1\n  b = 2\n  c\n"),
        ),
    ]);
}

/// What Nomad's own command makes of them.
#[test]
fn numbers_sets_and_letters_are_those_of_nomads_command() {
    check(&[
        ("format(\"%v %v %v %v\", 1000000, 1234567, 0.00001, 21.5)", json!("1e+06 1.234567e+06 1e-05 21.5")),
        ("format(\"%g %.3g %.3g %e\", 123456, 1234567, 12, 1.5)", json!("123456 1.23e+06 12 1.500000e+00")),
        ("format(\"%g %g %v\", 0.0001, 123456789.5, 0)", json!("0.0001 1.234567895e+08 0")),
        ("format(\"%+d % d %#x %#o %#b %#v\", 5, 7, 255, 8, 2, 1000000)", json!("+5  7 0xff 010 0b10 1000000")),
        (
            "format(\"%q|%5t|%-5d|%05d|%6.2s|\", \"<é>\", true, 42, -42, \"abc\")",
            json!("\"\\u003cé\\u003e\"|true|42   |-0042|    ab|"),
        ),
        ("123456789012345678901234567890", json!(123_456_789_012_345_680_000_000_000_000.0)),
        ("\"n${123456789012345678901234567890}\"", json!("n123456789012345678901234567890")),
        ("parseint(\"zZ\", 62)", json!(2231)),
        ("parseint(\"-ff\", 16)", json!(-255)),
        ("strlen(\"e\u{301}👨‍👩‍👧\")", json!(2)),
        ("substr(\"👨‍👩‍👧xyz\", 1, -1)", json!("xyz")),
        ("strrev(\"👨‍👩‍👧x\")", json!("x👨‍👩‍👧")),
        ("jsonencode(\"<\u{2028}>\")", json!("\"\\u003c\\u2028\\u003e\"")),
        ("formatdate(\"'at' hh 'o''clock' ''\", \"2026-03-05T14:07:09Z\")", json!("at 14 o'clock '")),
        ("join(\",\", setunion([3, 20], [\"1\"]))", json!("1,20,3")),
        ("setunion([3, 20], [1])", json!([1, 3, 20])),
        ("setintersection([1, 2, 3], [\"3\", 2])", json!(["2", "3"])),
        ("setsubtract([\"b\", \"a\", \"b\"], [\"c\"])", json!(["a", "b"])),
        ("distinct([1, \"1\", 1])", json!(["1"])),
        ("[for k, v in convert([\"b\", \"a\", \"b\"], set(string)) : \"${k}=${v}\"]", json!(["a=a", "b=b"])),
        ("\"%{ for k, v in convert([\"b\", \"a\"], set(string)) }${k}${v}%{ endfor }\"", json!("aabb")),
        ("convert([\"a\"], set(string)) == [\"a\"]", json!(false)),
        ("length(convert([1, \"1\"], set(string)))", json!(1)),
        ("can(convert([\"a\"], set(string))[0])", json!(false)),
        ("convert(convert([2, 1], set(number)), list(string))[0]", json!("1")),
    ]);
}

#[test]
fn functions() {
    check(&[
        ("abs(-3)", json!(3)),
        ("ceil(1.2)", json!(2)),
        ("floor(-1.2)", json!(-2)),
        ("signum(-9)", json!(-1)),
        ("log(16, 2)", json!(4)),
        ("pow(2, 70)", json!(1_180_591_620_717_411_303_424_f64)),
        ("max(1, 5, \"3\")", json!(5)),
        ("min([1, 5]...)", json!(1)),
        ("parseint(\"ff\", 16)", json!(255)),
        ("chomp(\"a\\n\\n\")", json!("a")),
        ("title(\"hello wide world\")", json!("Hello Wide World")),
        ("strrev(\"añb\")", json!("bña")),
        ("substr(\"hello\", -3, 2)", json!("ll")),
        ("substr(\"hello\", 1, -1)", json!("ello")),
        ("trim(\"--a-\", \"-\")", json!("a")),
        ("trimprefix(\"v1\", \"v\")", json!("1")),
        ("trimsuffix(\"a.hcl\", \".hcl\")", json!("a")),
        ("indent(2, \"a\\nb\")", json!("a\n  b")),
        ("join(\"-\", [\"a\", \"b\"], [\"c\"])", json!("a-b-c")),
        ("split(\",\", \"a,b,\")", json!(["a", "b", ""])),
        ("replace(\"a.b.c\", \".\", \"-\")", json!("a-b-c")),
        ("regex_replace(\"ab12\", \"([a-z])([a-z])\", \"$2$1\")", json!("ba12")),
        ("regex(\"[0-9]+\", \"ab12\")", json!("12")),
        ("regex(\"(?P<a>[a-z]+)(?P<n>[0-9]+)\", \"ab12\")", json!({"a": "ab", "n": "12"})),
        (
            "format(\"%s-%03d-%.2f-%t-%v-%%-%q-%x\", \"a\", 7, 1.5, true, [1], \"q\", 255)",
            json!("a-007-1.50-true-[1]-%-\"q\"-ff"),
        ),
        ("format(\"%[2]s%[1]s|%5s|%-5s|\", \"a\", \"b\", \"c\")", json!("ba|    b|c    |")),
        ("formatlist(\"%s:%d\", [\"a\", \"b\"], 1)", json!(["a:1", "b:1"])),
        ("chunklist([1, 2, 3], 2)", json!([[1, 2], [3]])),
        ("coalesce(null, \"b\")", json!("b")),
        ("coalescelist([], [1])", json!([1])),
        ("compact([\"a\", \"\", \"b\"])", json!(["a", "b"])),
        ("concat([1], [2, 3])", json!([1, 2, 3])),
        ("contains([\"a\"], \"a\")", json!(true)),
        ("distinct([1, 2, 1])", json!([1, 2])),
        ("element([\"a\", \"b\"], 3)", json!("b")),
        ("flatten([1, [2, [3]]])", json!([1, 2, 3])),
        ("index([\"a\", \"b\"], 1)", json!("b")),
        ("keys({b = 1, a = 2})", json!(["a", "b"])),
        ("values({b = 1, a = 2})", json!([2, 1])),
        ("strlen(\"añ\")", json!(2)),
        ("lookup({a = 1}, \"b\", 2)", json!(2)),
        ("merge({a = 1}, {a = 2, b = 3})", json!({"a": 2, "b": 3})),
        ("range(3)", json!([0, 1, 2])),
        ("range(5, 1, -2)", json!([5, 3])),
        ("reverse([1, 2])", json!([2, 1])),
        ("reverse(\"ab\")", json!("ba")),
        ("slice([1, 2, 3], 1, 3)", json!([2, 3])),
        ("sort([\"b\", \"a\"])", json!(["a", "b"])),
        ("zipmap([\"a\"], [1])", json!({"a": 1})),
        ("setintersection([\"b\", \"a\"], [\"a\", \"c\"])", json!(["a"])),
        ("setunion([\"b\"], [\"a\"])", json!(["a", "b"])),
        ("setsubtract([\"a\", \"b\"], [\"a\"])", json!(["b"])),
        ("setproduct([\"a\", \"b\"], [1])", json!([["a", 1], ["b", 1]])),
        ("base64encode(\"hi\")", json!("aGk=")),
        ("base64decode(\"aGk=\")", json!("hi")),
        ("urlencode(\"a b&c/d\")", json!("a+b%26c%2Fd")),
        ("md5(\"a\")", json!("0cc175b9c0f1b6a831c399e269772661")),
        ("sha1(\"a\")", json!("86f7e437faa5a7fce15d1ddcb9eaeaea377667b8")),
        ("sha256(\"\")", json!("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")),
        ("substr(sha512(\"\"), 0, 8)", json!("cf83e135")),
        ("uuidv5(\"dns\", \"www.example.com\")", json!("2ed6657d-e927-568b-95e1-2665a8aea6a2")),
        ("strlen(uuidv4())", json!(36)),
        ("jsonencode({a = [1, \"x\"]})", json!("{\"a\":[1,\"x\"]}")),
        ("jsondecode(\"{\\\"a\\\": 1.5}\").a", json!(1.5)),
        ("yamldecode(\"a: [1, b]\").a", json!([1, "b"])),
        ("csvdecode(\"a,b\\n1,\\\"x,y\\\"\\n\")", json!([{"a": "1", "b": "x,y"}])),
        ("timeadd(\"2026-01-02T03:04:05Z\", \"90m\")", json!("2026-01-02T04:34:05Z")),
        (
            "formatdate(\"EEEE, DD MMM YYYY hh:mm 'Uhr' ZZZ\", \"2026-01-02T03:04:05Z\")",
            json!("Friday, 02 Jan 2026 03:04 Uhr UTC"),
        ),
        ("cidrhost(\"10.12.112.0/20\", 16)", json!("10.12.112.16")),
        ("cidrhost(\"fd00::/64\", -1)", json!("fd00::ffff:ffff:ffff:ffff")),
        ("cidrnetmask(\"172.16.0.0/12\")", json!("255.240.0.0")),
        ("cidrsubnet(\"10.1.2.0/24\", 4, 15)", json!("10.1.2.240/28")),
        ("cidrsubnets(\"10.1.0.0/16\", 4, 4, 8)", json!(["10.1.0.0/20", "10.1.16.0/20", "10.1.32.0/24"])),
        ("basename(\"a/b/c.txt\")", json!("c.txt")),
        ("dirname(\"a/b/c.txt\")", json!("a/b")),
        ("can(1 / 0)", json!(false)),
        ("try({a = 1}.b, \"none\")", json!("none")),
        ("convert(\"5\", number)", json!(5)),
        ("convert([1, 2], list(string))", json!(["1", "2"])),
        ("startswith(\"ab\", \"a\") && endswith(\"ab\", \"b\") && strcontains(\"abc\", \"b\")", json!(true)),
    ]);
}

/// G-047: what only the node knows stays as its text: bare, with spaces, in a heredoc, under a directive and in a
/// function.
#[test]
fn g_047_references_of_the_node_are_kept_as_text() {
    check(&[
        ("attr.kernel.name", json!("${attr.kernel.name}")),
        ("\"${attr.kernel.name}\"", json!("${attr.kernel.name}")),
        ("\"${ attr.kernel.name }\"", json!("${ attr.kernel.name }")),
        ("\"a-${NOMAD_ALLOC_INDEX}-b${1 + 1}\"", json!("a-${NOMAD_ALLOC_INDEX}-b2")),
        ("\"${upper(attr.kernel.name)}\"", json!("${ATTR.KERNEL.NAME}")),
        ("format(\"%s:%d\", attr.unique.network.ip-address, 80)", json!("${attr.unique.network.ip-address}:80")),
        ("[meta.rack, \"x\"]", json!(["${meta.rack}", "x"])),
        ("{a = node.class}", json!({"a": "${node.class}"})),
        ("<<EOT\nport ${NOMAD_PORT_http}\nEOT\n", json!("port ${NOMAD_PORT_http}\n")),
        ("\"%{ if attr.os == \"x\" }yes%{ else }no%{ endif } ${1}\"", json!("no 1")),
        ("\"${env[\"HOME\"]}\"", json!("${env[\"HOME\"]}")),
        ("\"$${literal} %%{ if }\"", json!("${literal} %{ if }")),
    ]);
}

const VARIABLES: &str = r#"
variable "text" {}
variable "count" {
  type    = number
  default = 2
}
variable "list" {
  type    = list(string)
  default = []
}
variable "plain" {
  default = true
}
"#;

#[test]
fn values_of_variables_come_from_the_command_then_files_then_the_environment() {
    let expressions = [("text", "var.text"), ("count", "var.count"), ("list", "var.list"), ("plain", "var.plain")];
    let mut inputs = Inputs {
        environment: BTreeMap::from([("text".to_owned(), "env".to_owned()), ("count".to_owned(), "7".to_owned())]),
        ..Inputs::default()
    };
    let found = values(&expressions, &inputs, VARIABLES).unwrap();
    assert_eq!(found, json!({"text": "env", "count": 7, "list": [], "plain": true}));
    inputs.files.push(("values.hcl".to_owned(), "text = \"file\"\nlist = [1, 2]\n".to_owned()));
    let found = values(&expressions, &inputs, VARIABLES).unwrap();
    assert_eq!(found, json!({"text": "file", "count": 7, "list": ["1", "2"], "plain": true}));
    inputs.values.insert("text".to_owned(), "[1]".to_owned());
    inputs.values.insert("list".to_owned(), "[\"a\"]".to_owned());
    let found = values(&expressions, &inputs, VARIABLES).unwrap();
    assert_eq!(found, json!({"text": "[1]", "count": 7, "list": ["a"], "plain": true}));
    inputs.values.insert("count".to_owned(), "many".to_owned());
    inputs.values.insert("other".to_owned(), "1".to_owned());
    let faults = values(&expressions, &inputs, VARIABLES).unwrap_err();
    assert!(
        faults[0].contains("has no variable `other`, which -var names; it declares text, count, list, plain"),
        "{faults:#?}"
    );
    assert!(faults.iter().any(|fault| fault.starts_with("j.hcl:3:1: variable `count`")), "{faults:#?}");
}

#[test]
fn a_variable_without_a_value_and_one_that_breaks_its_rule_are_named() {
    let faults = values(&[], &Inputs::default(), "variable \"a\" {}\n").unwrap_err();
    assert_eq!(
        faults,
        [
            "j.hcl:1:1: variable `a`: has no value and no default; give one with -var a=…, a file of values or NOMAD_VAR_a"
        ]
    );
    let rule = "variable \"a\" {\n  default = 1\n  validation {\n    condition = var.a > 1\n    error_message = \"More.\"\n  }\n}\n";
    let faults = values(&[], &Inputs::default(), rule).unwrap_err();
    assert_eq!(faults, ["j.hcl:1:1: variable `a`: More."]);
}

/// G-048: nested `dynamic` blocks, typed variables, and one that is missing: the place of each fault is named.
#[test]
fn dynamic_blocks_may_nest_and_take_labels_and_iterators() {
    let text = r#"
variable "groups" {
  type    = map(object({ ports = list(string) }))
  default = { a = { ports = ["x", "y"] }, b = { ports = [] } }
}
job "j" {
  dynamic "group" {
    for_each = var.groups
    labels   = [group.key]
    content {
      network {
        dynamic "port" {
          for_each = group.value.ports
          iterator = item
          labels   = ["${group.key}-${item.value}"]
          content {
            to = 8000 + item.key
          }
        }
      }
      task "t" {
        driver = "exec"
      }
    }
  }
}
"#;
    let found = manifests("j.hcl", text, &Inputs::default()).unwrap();
    let groups = &found[0]["spec"]["groups"];
    assert_eq!(groups[0]["name"], "a");
    assert_eq!(groups[0]["networks"][0]["ports"], json!([{"label": "a-x", "to": 8000}, {"label": "a-y", "to": 8001}]));
    assert_eq!(groups[1]["networks"], json!([{}]));
    let broken =
        text.replace("group.value.ports", "group.value.port").replace("for_each = var.groups", "for_each = var.group");
    let faults = manifests("j.hcl", &broken, &Inputs::default()).unwrap_err();
    assert_eq!(
        faults[0].to_string(),
        "j.hcl:8:16: there is no variable `group`; declare it with a block `variable \"group\" {}`"
    );
}

#[derive(Debug)]
struct OneFile;

impl Files for OneFile {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        if path == "motd" { Ok(b"hello".to_vec()) } else { Err(format!("`{path}` is not there")) }
    }

    fn matching(&self, _folder: &str, _pattern: &str) -> Result<Vec<String>, String> {
        Ok(vec!["a.txt".to_owned()])
    }
}

#[test]
fn files_are_read_only_where_the_caller_has_them() {
    let expressions = [("a", "file(\"motd\")"), ("b", "fileexists(\"none\")"), ("c", "fileset(\".\", \"*.txt\")")];
    let inputs = Inputs { readable: Some(&OneFile), ..Inputs::default() };
    assert_eq!(values(&expressions, &inputs, "").unwrap(), json!({"a": "hello", "b": false, "c": ["a.txt"]}));
    let faults = values(&expressions[..1], &Inputs::default(), "").unwrap_err();
    assert!(faults[0].contains("file: reads no files here"), "{faults:?}");
    let faults = values(&[("a", "file(\"x\")")], &inputs, "").unwrap_err();
    assert_eq!(faults, ["j.hcl:7:11: file: `x` is not there"]);
}

/// What Nomad's own parser of job files makes of expressions: `null` stands for an error. `testdata/README.md` says how
/// the file is made.
#[test]
fn values_are_those_of_nomads_own_parser() {
    let cases: Vec<(String, Value)> = serde_json::from_str(include_str!("../../testdata/expressions.json")).unwrap();
    let mut wrong = Vec::new();
    for (text, expected) in &cases {
        let found = values(&[("x", text)], &Inputs::default(), "").map_or(Value::Null, |found| found["x"].clone());
        if &found != expected {
            wrong.push(format!("{text}\n  here  {found}\n  there {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
