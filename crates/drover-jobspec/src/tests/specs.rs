//! Random specs of jobs: each field of the schema, with values that its bounds allow. A field that is added to the
//! schema is in them at once.

use std::sync::LazyLock;

use drover_api::JobSpec;
use fastrand::Rng;
use serde_json::{Map, Value, json};

/// Texts that are hard to write down.
const TEXTS: [&str; 20] = [
    "a",
    "web-1",
    "${attr.cpu.arch}",
    "x ${NOMAD_PORT_http} y ${meta.a-b}",
    "$${attr.cpu.arch}",
    "$$${meta.x}",
    "${upper(\"a\")} ${ attr.x } ${var.x} ${1 + 1}",
    "%{ if true }x%{ endif }",
    "%%{x} 100%",
    "$ { } \"quoted\" \\ back \\n",
    "two\nlines\n",
    "EOH\nEOH\n",
    "tab\tcarriage\r\nbell\u{7}",
    "<<EOH\n  ${attr.x} %{x}\n\\t\n",
    "äöü 漢字 \u{1f980}",
    "${",
    "$",
    "# no comment // /* */",
    "{{ range .x }}{{ end }}",
    "null",
];

/// The schema of a job's spec.
static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let crds = drover_api::crds();
    let job = crds.iter().find(|crd| crd.spec.names.kind == "Job").expect("there are Jobs");
    let schema = serde_json::to_value(&job.spec.versions[0].schema).unwrap();
    schema["openAPIV3Schema"]["properties"]["spec"].clone()
});

/// A spec for a seed.
pub(super) fn spec(seed: u64) -> JobSpec {
    let mut spec = object(&SCHEMA["properties"], &SCHEMA, &mut Rng::with_seed(seed));
    // What is decided while a job runs is in no job file.
    spec.remove("dispatch");
    spec.remove("scale");
    // It is refused wherever it stands (`spec/scheduler.md`), but for the value that Nomad always writes.
    if let Some(Value::Object(update)) = spec.get_mut("update") {
        update.remove("stagger");
    }
    // One of the two.
    if let Some(Value::Object(periodic)) = spec.get_mut("periodic")
        && periodic.contains_key("crons")
    {
        periodic.remove("cron");
    }
    serde_json::from_value(Value::Object(spec)).unwrap_or_else(|error| panic!("seed {seed}: {error}"))
}

fn object(properties: &Value, schema: &Value, rng: &mut Rng) -> Map<String, Value> {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let mut fields = Map::new();
    for (name, schema) in properties.as_object().unwrap() {
        // Groups and tasks hold all the rest, and each must be met often.
        let is_needed = required.contains(&json!(name)) || ["groups", "tasks"].contains(&name.as_str());
        if is_needed || rng.u8(..) < 100 {
            fields.insert(name.clone(), value(schema, rng));
        }
    }
    fields
}

fn value(schema: &Value, rng: &mut Rng) -> Value {
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<&Value> = values.iter().filter(|value| !value.is_null()).collect();
        return values[rng.usize(..values.len())].clone();
    }
    match schema["type"].as_str().unwrap_or_default() {
        "string" if schema.to_string().contains("must be a duration") => duration(rng).into(),
        "string" => text(schema, rng).into(),
        "boolean" => rng.bool().into(),
        "integer" => {
            let least = schema["minimum"].as_f64().unwrap_or(0.0);
            #[expect(clippy::cast_possible_truncation, reason = "bounds are whole")]
            let least = least as i64;
            least.saturating_add([0, 1, 2, 7, 50, 300][rng.usize(..6)]).into()
        }
        "array" => array(schema, rng),
        "object" if schema["properties"].is_object() => Value::Object(object(&schema["properties"], schema, rng)),
        "object" if schema["additionalProperties"].is_object() => {
            let of_map = &schema["additionalProperties"];
            (0..rng.usize(..3)).map(|_| (key(rng), value(of_map, rng))).collect::<Map<_, _>>().into()
        }
        "object" => {
            assert_eq!(schema["x-kubernetes-preserve-unknown-fields"], true, "{schema}");
            free_map(rng, 0)
        }
        other => panic!("type {other}: {schema}"),
    }
}

fn array(schema: &Value, rng: &mut Rng) -> Value {
    let least = usize::try_from(schema["minItems"].as_i64().unwrap_or(0)).unwrap();
    let n = least + rng.usize(..3);
    let keys = schema["x-kubernetes-list-map-keys"].as_array().cloned().unwrap_or_default();
    let items = (0..n).map(|at| {
        let mut item = value(&schema["items"], rng);
        for key in keys.iter().filter_map(Value::as_str) {
            let odd = ["", "", "", " b", "\"", "${x}", "%{"][rng.usize(..7)];
            item[key] = format!("n{at}{odd}").into();
        }
        item
    });
    items.collect()
}

fn duration(rng: &mut Rng) -> String {
    ["0s", "1ns", "250ms", "1s", "5s", "30s", "90m", "1h30m", "24h"][rng.usize(..9)].to_owned()
}

fn text(schema: &Value, rng: &mut Rng) -> String {
    match schema["minLength"].as_i64() {
        None | Some(0) if rng.u8(..) < 40 => String::new(),
        _ => TEXTS[rng.usize(..TEXTS.len())].to_owned(),
    }
}

fn key(rng: &mut Rng) -> String {
    ["A", "b_2", "with-dash", "true", "for", "a.b", "1", "ä", "with space", "\"", "${attr.x}", "${"][rng.usize(..12)]
        .to_owned()
}

fn free_map(rng: &mut Rng, depth: usize) -> Value {
    (0..rng.usize(..4)).map(|_| (key(rng), free(rng, depth))).collect::<Map<_, _>>().into()
}

fn free(rng: &mut Rng, depth: usize) -> Value {
    match rng.u8(..if depth < 3 { 9 } else { 7 }) {
        0 => Value::Null,
        1 => rng.bool().into(),
        2 => rng.i64(..).into(),
        3 => rng.u64(..).into(),
        4 => json!(f64::from(rng.i32(..)) + 0.5),
        5 | 6 => TEXTS[rng.usize(..TEXTS.len())].into(),
        7 => (0..rng.usize(..10)).map(|_| free(rng, depth + 1)).collect(),
        _ => free_map(rng, depth + 1),
    }
}
