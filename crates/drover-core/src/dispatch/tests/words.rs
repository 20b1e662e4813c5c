//! Word for word what a dispatch is told, and the last byte, number and key that it may bring.

use super::*;

fn told(parent: Parent<'_>, own: &JobSpec) -> Vec<String> {
    violations(parent, own).iter().map(ToString::to_string).collect()
}

fn with(rules: &Value, change: impl FnOnce(&mut JobSpec)) -> Vec<String> {
    let (parent, mut own) = (parent(rules), own(&json!({}), b""));
    change(&mut own);
    told(Parent { name: "p", spec: Some(&parent), is_stopped: false }, &own)
}

#[test]
fn what_is_wrong_with_the_parent_is_told_alone() {
    let own = own(&json!({ "x": "1" }), b"");
    let missing = "spec.dispatch.parent: p is no job of this namespace; create the parameterized job, or correct the \
                   name (NotFound)";
    assert_eq!(told(Parent { name: "p", spec: None, is_stopped: true }, &own), [missing]);
    let plain = JobSpec { parameterized: None, ..parent(&json!({})) };
    let other = "spec.dispatch.parent: p is not parameterized; only a job with spec.parameterized can be dispatched \
                 (NotParameterized)";
    assert_eq!(told(Parent { name: "p", spec: Some(&plain), is_stopped: true }, &own), [other]);
}

#[test]
fn a_stopped_parent_takes_nothing() {
    let (parent, own) = (parent(&json!({})), own(&json!({}), b""));
    let stopped = "spec.dispatch.parent: p is stopped; start it, then dispatch again (Stopped)";
    assert_eq!(told(Parent { name: "p", spec: Some(&parent), is_stopped: true }, &own), [stopped]);
}

#[test]
fn a_priority_is_from_1_to_100_and_the_parents_where_none_is_given() {
    for (given, wrong) in [(None, None), (Some(0), Some(0)), (Some(1), None), (Some(100), None), (Some(101), Some(101))]
    {
        let found = with(&json!({}), |own| own.dispatch.as_mut().unwrap().priority = given);
        let message =
            |it: i64| format!("spec.dispatch.priority: {it} is outside 1 to 100; take a value between (PriorityRange)");
        assert_eq!(found, wrong.map(message).into_iter().collect::<Vec<_>>(), "{given:?}");
    }
}

#[test]
fn a_payload_has_at_most_16_kib_before_it_is_encoded() {
    for (bytes, is_wrong) in [(0, false), (16_384, false), (16_385, true)] {
        let found = with(&json!({}), |own| own.dispatch.as_mut().unwrap().payload = encoded(&vec![0; bytes]));
        let message = format!(
            "spec.dispatch.payload: has {bytes} bytes, above 16384; pass a reference to it in meta instead \
             (PayloadTooLarge)"
        );
        assert_eq!(found, if is_wrong { vec![message] } else { vec![] }, "{bytes}");
    }
}

#[test]
fn a_payload_follows_the_parents_rule() {
    let missing = "spec.dispatch.payload: is missing, and the job requires one; give a payload (PayloadRequired)";
    let forbidden = "spec.dispatch.payload: is given, and the job takes none; leave it out (PayloadForbidden)";
    let twice = "spec.dispatch.payloadSecret: is given beside payload; a dispatch has one payload: remove one of them \
                 (PayloadTwice)";
    for (rule, payload, secret, expected) in [
        ("optional", "", "", vec![]),
        ("optional", "eA==", "", vec![]),
        ("optional", "", "s", vec![]),
        ("optional", "eA==", "s", vec![twice]),
        ("required", "", "", vec![missing]),
        ("required", "eA==", "", vec![]),
        ("required", "", "s", vec![]),
        ("forbidden", "", "", vec![]),
        ("forbidden", "eA==", "", vec![forbidden]),
        ("forbidden", "", "s", vec![forbidden]),
        ("forbidden", "eA==", "s", vec![twice, forbidden]),
    ] {
        let found = with(&json!({ "payload": rule }), |own| {
            let dispatch = own.dispatch.as_mut().unwrap();
            (dispatch.payload, dispatch.payload_secret) = (payload.to_owned(), secret.to_owned());
        });
        assert_eq!(found, expected, "{rule} {payload:?} {secret:?}");
    }
}

#[test]
fn meta_is_what_the_parent_names_and_no_more() {
    let rules = json!({ "metaRequired": ["b", "a"], "metaOptional": ["c"] });
    for (given, expected) in [
        (json!({ "a": "", "b": "" }), vec![]),
        (json!({ "a": "", "b": "", "c": "" }), vec![]),
        (
            json!({ "A": "", "b": "", "a": "", "d": "" }),
            vec!["spec.meta: has A, d, which the job does not take; it takes a, b, c (MetaNotPermitted)"],
        ),
        (json!({}), vec!["spec.meta: lacks b, a, which the job requires; give them (MetaMissing)"]),
    ] {
        let found = with(&rules, |own| own.meta = serde_json::from_value(given.clone()).unwrap());
        assert_eq!(found, expected, "{given}");
    }
    let none = with(&json!({}), |own| own.meta = [("x".to_owned(), String::new())].into());
    assert_eq!(none, ["spec.meta: has x, which the job does not take; it takes none (MetaNotPermitted)"]);
}

#[test]
fn each_block_of_the_parents_is_refused_by_its_name() {
    for (block, value) in [
        ("constraints", json!([{ "lTarget": "${attr.a}", "operand": "=", "rTarget": "b" }])),
        ("affinities", json!([{ "lTarget": "${attr.a}", "operand": "=", "rTarget": "b", "weight": 50 }])),
        ("spreads", json!([{ "attribute": "${attr.a}", "weight": 50 }])),
        ("update", json!({})),
        ("periodic", json!({ "cron": "@daily" })),
        ("parameterized", json!({})),
        ("multiregion", json!({})),
    ] {
        let found = with(&json!({}), |own| {
            let mut written = serde_json::to_value(&*own).unwrap();
            written[block] = value;
            *own = spec(&written);
        });
        let message =
            format!("spec.{block}: is the parent's for a dispatched job; remove it, or set it there (DispatchField)");
        assert_eq!(found, [message]);
    }
}
