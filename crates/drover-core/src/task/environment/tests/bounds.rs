//! The last byte that a value, and that all of them, may have.

use serde_json::json;

use super::*;

/// Text of so many bytes.
fn long(bytes: usize) -> String {
    "x".repeat(bytes)
}

#[test]
fn a_value_may_have_its_most_bytes_and_not_one_more() {
    let env = BTreeMap::from([("H".to_owned(), long(MAX_VALUE_BYTES / 2)), ("E".to_owned(), String::new())]);
    let length = |text: &str| interpolate(text, &env, &node()).map(|text| text.len());
    assert_eq!(length(&long(MAX_VALUE_BYTES)), Ok(MAX_VALUE_BYTES));
    assert_eq!(length(&long(MAX_VALUE_BYTES + 1)), Err(TooLong));
    assert_eq!(length("${H}${H}${E}"), Ok(MAX_VALUE_BYTES));
    for longer in ["${H}${H}x", "x${H}${H}", "${H}x${H}", "${H}${H}${none}"] {
        assert_eq!(length(longer), Err(TooLong), "{longer}");
    }
    // The last letter has two bytes.
    assert_eq!(length(&format!("{}é", long(MAX_VALUE_BYTES - 2))), Ok(MAX_VALUE_BYTES));
    assert_eq!(length(&format!("{}é", long(MAX_VALUE_BYTES - 1))), Err(TooLong));
    let words = interpolate_words("${H}${H}x", &env);
    assert_eq!(words, Err(TooLong));
}

/// How many bytes the built-in variables have beside those of a field.
fn built_in() -> usize {
    size(&build(AllocatedResources::default(), &JobSpec::default(), &task(&json!({})), &BTreeMap::new()))
}

/// Values with names of two letters that fill a task's bytes but for `free`.
fn filling(free: usize) -> BTreeMap<String, String> {
    let (mut left, mut all) = (MAX_TOTAL_BYTES - built_in() - free, BTreeMap::new());
    for n in 10.. {
        let bytes = left.min(MAX_VALUE_BYTES);
        if bytes < 2 {
            break;
        }
        all.insert(n.to_string(), long(bytes - 2));
        left -= bytes;
    }
    all
}

#[test]
fn an_environment_may_have_its_most_bytes_and_not_one_more() {
    let of = |env: BTreeMap<String, String>, host: BTreeMap<String, String>| {
        let task = task(&json!({ "env": env }));
        try_build(AllocatedResources::default(), &JobSpec::default(), &task, &host).map(|env| size(&env))
    };
    let one = |value: &str| BTreeMap::from([("99".to_owned(), value.to_owned())]);
    let with = |free: usize, value: &str| filling(free).into_iter().chain(one(value)).collect::<BTreeMap<_, _>>();
    assert_eq!(of(with(4, "ab"), BTreeMap::new()), Ok(MAX_TOTAL_BYTES));
    assert_eq!(of(with(4, "abc"), BTreeMap::new()), Err(ExpansionError::TooMuch("env.99".to_owned())));
    // What the host gives counts first.
    assert_eq!(of(filling(4), one("ab")), Ok(MAX_TOTAL_BYTES));
    let error = of(filling(4), one("abc")).expect_err("one too many");
    assert!(matches!(&error, ExpansionError::TooMuch(field) if field.starts_with("env.")), "{error}");
    let error = of(BTreeMap::new(), with(4, "abc")).expect_err("one too many").to_string();
    assert!(error.starts_with("the node's variable 99: with it the task's environment and config have"), "{error}");
}

#[test]
fn a_variable_of_the_host_that_no_task_gets_costs_nothing() {
    let denied = BTreeMap::from([("NOMAD_TOKEN".to_owned(), long(10)), ("NOMAD_DC".to_owned(), long(10))]);
    let task = task(&json!({ "env": filling(0) }));
    let env = try_build(AllocatedResources::default(), &JobSpec::default(), &task, &denied);
    assert_eq!(env.map(|env| size(&env)), Ok(MAX_TOTAL_BYTES));
}

#[test]
fn meta_counts_under_each_of_its_names() {
    // Three names of 13 bytes: NOMAD_META_ and two letters.
    let value = MAX_TOTAL_BYTES - built_in();
    let meta = |last: usize| {
        let share = MAX_VALUE_BYTES / 2;
        let keys = (value - 3 * (13 + last)) / (3 * (13 + share));
        let mut meta: BTreeMap<String, String> =
            (0..keys).map(|n| (format!("{}-", char::from(b'a' + u8::try_from(n).unwrap())), long(share))).collect();
        let rest = value - 3 * (13 + share) * keys;
        meta.insert("z-".to_owned(), long(rest / 3 - 13 + last));
        JobSpec { meta, ..JobSpec::default() }
    };
    let of = |job: &JobSpec| {
        try_build(AllocatedResources::default(), job, &task(&json!({})), &BTreeMap::new()).map(|env| size(&env))
    };
    let fits = of(&meta(0)).expect("it fits");
    assert!(fits <= MAX_TOTAL_BYTES && fits + 3 > MAX_TOTAL_BYTES, "{fits}");
    assert_eq!(of(&meta(1)), Err(ExpansionError::TooMuch("meta.z-".to_owned())));
}

#[test]
fn ports_alone_may_be_too_much() {
    let label = long(MAX_TOTAL_BYTES / 7);
    let ports = vec![AllocatedPort { label, value: 80, to: 0, host_ip: "10.0.0.1".into() }];
    let resources = AllocatedResources { ports, ..AllocatedResources::default() };
    let error = try_build(resources, &JobSpec::default(), &task(&json!({})), &BTreeMap::new());
    assert_eq!(error, Err(ExpansionError::TooMuch("resources.ports".to_owned())));
}

#[test]
fn settings_have_what_their_environment_leaves() {
    let env: BTreeMap<String, String> = (0..8).map(|n| (n.to_string(), long(MAX_VALUE_BYTES - 2))).collect();
    let free = MAX_TOTAL_BYTES - size(&env);
    assert_eq!(free, 8);
    let of =
        |config: serde_json::Value| interpolate_config(config.as_object().expect("fields"), &env, &node()).map(drop);
    let too_much = |field: &str| Err(ExpansionError::TooMuch(field.to_owned()));
    assert_eq!(of(json!({ "ab": "123456" })), Ok(()));
    assert_eq!(of(json!({ "ab": "1234567" })), too_much("config.ab"));
    assert_eq!(of(json!({ "ab": ["123", "456"] })), Ok(()));
    assert_eq!(of(json!({ "ab": ["123", "4567"] })), too_much("config.ab[1]"));
    assert_eq!(of(json!({ "ab": { "cd": "1234" } })), Ok(()), "inner names count");
    assert_eq!(of(json!({ "ab": { "cd": "12345" } })), too_much("config.ab.cd"));
    assert_eq!(of(json!({ "ab": { "1234567": 1 } })), too_much("config.ab"));
    assert_eq!(of(json!({ "123456789": 1 })), too_much("config.123456789"));
    assert_eq!(of(json!({ "12345678": [1, true, null] })), Ok(()), "numbers and switches count for nothing");
}

#[test]
fn an_environment_that_is_over_already_leaves_nothing() {
    let env: BTreeMap<String, String> = (0..9).map(|n| (n.to_string(), long(MAX_VALUE_BYTES))).collect();
    let config = json!({ "a": "" });
    let expanded = interpolate_config(config.as_object().expect("fields"), &env, &node());
    assert_eq!(expanded, Err(ExpansionError::TooMuch("config.a".to_owned())));
    let none = interpolate_config(json!({}).as_object().expect("fields"), &env, &node());
    assert_eq!(none.map(|all| all.len()), Ok(0));
}
