//! What `${…}` stands for in text and in settings, and what it leaves alone.

use serde_json::{Value, json};

use super::*;
use fastrand::Rng;

fn whole_node() -> NodeFacts {
    let facts = [("kernel.name", "linux"), ("cpu", "8")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    NodeFacts { class: "big".into(), pool: "blue".into(), attributes: facts.into(), ..node() }
}

fn variables() -> BTreeMap<String, String> {
    let all = [("X", "x"), ("a.b", "dotted"), ("attr.os", "own"), ("node.pool", "own"), ("node.odd", "odd"), ("E", "")];
    all.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

#[test]
fn each_form_of_a_reference_has_its_value() {
    for (text, expected) in [
        ("${X}", "x"),
        ("${ X\t}", "x"),
        ("${env[\"X\"]}", "x"),
        ("${env[X]}", "x"),
        ("${env[\"a.b\"]}", "dotted"),
        ("${a.b}", "dotted"),
        ("a${E}b", "ab"),
        ("${X}${X}", "xx"),
        ("${node.unique.id} ${node.unique.name}", "n-1 n-1"),
        ("${node.datacenter} ${node.class} ${node.pool} ${node.region}", "dc1 big blue global"),
        ("${attr.cpu} ${meta.x}", "8 1"),
        ("${node.odd}", "odd"),
    ] {
        assert_eq!(interpolate(text, &variables(), &whole_node()).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn what_is_no_reference_to_anything_known_stays_as_it_is_written() {
    for text in [
        "",
        "$X",
        "{X}",
        "$ {X}",
        "${}",
        "${x}",
        "${X",
        "${env[\"Y\"]}",
        "${env[\"X\"}",
        "${attr.os}",
        "${env.X}",
        "${node.attr.cpu}",
        "${meta.y}",
        "${secret.a.b}",
        "100 % é ${ü}",
    ] {
        assert_eq!(interpolate(text, &variables(), &whole_node()).as_deref(), Ok(text), "{text}");
    }
}

#[test]
fn a_brace_ends_the_first_reference_that_is_open() {
    for (text, expected) in [("${a ${X}", "${a ${X}"), ("${X}}", "x}"), ("$${X}", "$x"), ("${X}${", "x${")] {
        assert_eq!(interpolate(text, &variables(), &whole_node()).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn words_alone_stand_for_nothing_of_the_node() {
    let text = "${X} ${attr.cpu} ${node.region} ${env[\"X\"]} ${ a.b }";
    let expected = "x ${attr.cpu} ${node.region} ${env[\"X\"]} dotted";
    assert_eq!(interpolate_words(text, &variables()).as_deref(), Ok(expected));
}

fn expanded(config: &Value) -> Result<Value, String> {
    let config = config.as_object().expect("fields");
    let expanded = interpolate_config(config, &variables(), &whole_node());
    expanded.map(Value::Object).map_err(|error| error.to_string())
}

#[test]
fn settings_are_expanded_at_every_depth_and_keep_their_types_and_names() {
    let written = json!({
        "command": "${X}", "${X}": true, "n": 1.5, "nothing": null, "empty": [],
        "deep": [["${attr.cpu}", 8], { "${X}": "${env[\"X\"]}", "b": { "c": "${E}" } }],
    });
    let wanted = json!({
        "command": "x", "${X}": true, "n": 1.5, "nothing": null, "empty": [],
        "deep": [["8", 8], { "${X}": "x", "b": { "c": "" } }],
    });
    assert_eq!(expanded(&written), Ok(wanted));
}

#[test]
fn the_first_unknown_reference_of_settings_is_named_with_its_field() {
    for (config, named) in [
        (json!({ "a": "${X} ${one} ${two}" }), "config.a: ${one}"),
        (json!({ "a": ["${X}", "${ one }"] }), "config.a[1]: ${ one }"),
        (json!({ "a": [[["${}"]]] }), "config.a[0][0][0]: ${}"),
        (json!({ "a": { "b": [{ "c": "${one}" }] } }), "config.a.b[0].c: ${one}"),
        (json!({ "a": "${attr.os}" }), "config.a: ${attr.os}"),
    ] {
        assert_eq!(expanded(&config), Err(format!("{named} is not known: check its spelling")), "{config}");
    }
    let open = json!({ "a": "${X" });
    assert_eq!(expanded(&open), Ok(open.clone()), "what has no end is no reference");
}

#[test]
fn an_unknown_reference_that_came_out_of_a_value_is_no_fault() {
    let env = BTreeMap::from([("X".to_owned(), "${nope}".to_owned())]);
    let config = json!({ "a": "${X}" });
    let expanded = interpolate_config(config.as_object().expect("fields"), &env, &node());
    assert_eq!(expanded.map(Value::Object), Ok(json!({ "a": "${nope}" })));
}

#[test]
fn a_nodes_words_are_the_references_that_text_expands_on_it() {
    let mut rng = Rng::with_seed(119);
    let keys = ["a", "a.b", "unique.id", "x y", "é"];
    for _ in 0..500 {
        let mut some = || -> BTreeMap<String, String> {
            let chosen: Vec<&str> = keys.into_iter().filter(|_| rng.bool()).collect();
            chosen.into_iter().map(|key| (key.to_owned(), format!("value of {key} {}", rng.u8(..)))).collect()
        };
        let node = NodeFacts { attributes: some(), meta: some(), ..whole_node() };
        let words = words_of_node(&node);
        assert_eq!(words.len(), 6 + node.attributes.len() + node.meta.len());
        for (name, value) in &words {
            assert_eq!(interpolate(&format!("${{{name}}}"), &BTreeMap::new(), &node).as_ref(), Ok(value), "{name}");
        }
        for key in keys {
            let known = |map: &BTreeMap<String, String>| map.get(key).cloned();
            assert_eq!(words.get(&format!("attr.{key}")).cloned(), known(&node.attributes), "attr.{key}");
            assert_eq!(words.get(&format!("meta.{key}")).cloned(), known(&node.meta), "meta.{key}");
        }
    }
}
