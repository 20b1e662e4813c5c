//! Changes JSON as JSON, so that what comes out is read to its depths.

use serde_json::{Map, Value};

/// Values at which code thinks differently.
const EDGES: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "2147483648",
    "-9223372036854775808",
    "9223372036854775807",
    "1e308",
    "0.5",
    "\"\"",
    "\"0\"",
    "\"-1s\"",
    "\"9223372036s\"",
    "\"1h\"",
    "\"*/1 * * * *\"",
    "\"${\"",
    "\"${attr.kernel.name}\"",
    "\"${node.unique.id}\"",
    "\"${meta.rack}\"",
    "\"(a+)+$\"",
    "\"> 1, < 3.0.0-beta\"",
    "\"\\u0000\"",
    "\"../../etc\"",
    "\"default\"",
    "\"dc*\"",
    "[]",
    "{}",
];

/// A changed document, at most so long; none when the input is no JSON or the change is too long.
pub fn mutate(input: &[u8], most: usize, seed: u64) -> Option<Vec<u8>> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut document: Value = serde_json::from_slice(input).ok()?;
    for _ in 0..rng.usize(1..4) {
        let donor = pick(&mut document, &mut rng).clone();
        let place = pick(&mut document, &mut rng);
        change(place, donor, &mut rng);
    }
    let bytes = serde_json::to_vec(&document).ok()?;
    (bytes.len() <= most).then_some(bytes)
}

/// A node of the tree, each about as likely as another.
fn pick<'a>(value: &'a mut Value, rng: &mut fastrand::Rng) -> &'a mut Value {
    let n = rng.usize(0..size(value));
    nth(value, n)
}

fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(fields) => fields.values().map(size).sum(),
        _ => 0,
    }
}

fn nth(value: &mut Value, n: usize) -> &mut Value {
    let Some(mut left) = n.checked_sub(1) else { return value };
    let children: Box<dyn Iterator<Item = &mut Value>> = match value {
        Value::Array(items) => Box::new(items.iter_mut()),
        Value::Object(fields) => Box::new(fields.values_mut()),
        _ => Box::new(std::iter::empty()),
    };
    for child in children {
        let of_child = size(child);
        if left < of_child {
            return nth(child, left);
        }
        left -= of_child;
    }
    unreachable!("n is below the size")
}

fn change(place: &mut Value, donor: Value, rng: &mut fastrand::Rng) {
    match (rng.u8(0..5), &mut *place) {
        (0, Value::Object(fields)) => remove(fields, rng),
        (1, Value::Object(fields)) => {
            // The name of a field of the schema, from the donor when it has one.
            if let Some((name, value)) = donor.as_object().and_then(|fields| rng.choice(fields.iter())) {
                fields.insert(name.clone(), value.clone());
            }
        }
        (0, Value::Array(items)) if !items.is_empty() => drop(items.remove(rng.usize(0..items.len()))),
        (1 | 2, Value::Array(items)) => items.push(items.first().cloned().unwrap_or(donor)),
        (2, Value::String(text)) => text.push_str(donor.as_str().unwrap_or("x")),
        (2, Value::Number(number)) => *place = number.as_i64().unwrap_or(0).wrapping_add(rng.i64(-9..9)).into(),
        (3, _) => *place = donor,
        _ => *place = rng.choice(EDGES).and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null),
    }
}

fn remove(fields: &mut Map<String, Value>, rng: &mut fastrand::Rng) {
    if let Some(name) = rng.choice(fields.keys()).cloned() {
        fields.remove(&name);
    }
}
