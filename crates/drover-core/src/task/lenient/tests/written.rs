//! Each value in each place that asks for one, as Nomad's drivers take it.

use super::*;

#[derive(Debug, PartialEq, Deserialize)]
struct LenientNumbers {
    #[serde(default)]
    small: Option<i32>,
    #[serde(default)]
    long: Option<i64>,
    #[serde(default)]
    count: Option<u32>,
    #[serde(default)]
    bytes: Option<u64>,
}

fn number(field: &str, value: &Value) -> Option<String> {
    let object = json!({ field: value });
    let read = LenientNumbers::deserialize(Lenient(&object)).ok()?;
    let each = [
        read.small.map(|it| it.to_string()),
        read.long.map(|it| it.to_string()),
        read.count.map(|it| it.to_string()),
        read.bytes.map(|it| it.to_string()),
    ];
    each.into_iter().flatten().next()
}

#[test]
fn a_number_may_be_written_as_text_as_long_as_it_fits() {
    for (field, value, read) in [
        ("small", json!("2147483647"), Some("2147483647")),
        ("small", json!("2147483648"), None),
        ("small", json!("-2147483648"), Some("-2147483648")),
        ("small", json!(2_147_483_648_i64), None),
        ("long", json!("-9223372036854775808"), Some("-9223372036854775808")),
        ("long", json!("9223372036854775808"), None),
        ("count", json!("4294967295"), Some("4294967295")),
        ("count", json!("4294967296"), None),
        ("count", json!("-1"), None),
        ("bytes", json!("18446744073709551615"), Some("18446744073709551615")),
        ("bytes", json!(u64::MAX), Some("18446744073709551615")),
        ("bytes", json!("18446744073709551616"), None),
        ("bytes", json!(1.5), None),
        ("bytes", json!("1.5"), None),
        ("bytes", json!(" 1"), None),
        ("bytes", json!(""), None),
        ("bytes", json!("0x10"), None),
        ("bytes", json!(true), None),
        ("bytes", json!([1]), None),
        ("bytes", json!(null), None),
    ] {
        assert_eq!(number(field, &value).as_deref(), read, "{field} {value}");
    }
}

#[test]
fn a_switch_is_on_or_off_by_its_word_or_number_in_text() {
    let of = |value: Value| read(&json!({ "one": { "is_on": value } })).map(|it| it.one.is_on).ok();
    for (value, is_on) in [
        (json!(true), Some(true)),
        (json!(false), Some(false)),
        (json!("true"), Some(true)),
        (json!("1"), Some(true)),
        (json!("false"), Some(false)),
        (json!("0"), Some(false)),
        (json!("True"), None),
        (json!("yes"), None),
        (json!(""), None),
        (json!(1), None),
        (json!(null), None),
    ] {
        assert_eq!(of(value.clone()), is_on, "{value}");
    }
}

#[test]
fn text_is_what_a_number_or_switch_looks_like_in_the_file() {
    let of = |value: Value| read(&json!({ "args": [value] })).map(|it| it.args[0].clone()).ok();
    for (value, text) in [
        (json!(0), Some("0")),
        (json!(-7), Some("-7")),
        (json!(u64::MAX), Some("18446744073709551615")),
        (json!(0.25), Some("0.25")),
        (json!(2.0), Some("2.0")),
        (json!(false), Some("false")),
        (json!("é"), Some("é")),
        (json!(null), None),
        (json!({}), None),
    ] {
        assert_eq!(of(value.clone()).as_deref(), text, "{value}");
    }
}

#[test]
fn a_block_that_stands_once_more_is_one_more_and_where_one_is_asked_for_they_are_one() {
    let sizes = |value: Value| read(&json!({ "some": value })).map(|it| it.some.iter().map(|one| one.size).collect());
    assert_eq!(sizes(json!([])), Ok(vec![]));
    assert_eq!(sizes(json!({ "size": 1 })), Ok(vec![1]));
    assert_eq!(sizes(json!([{ "size": 1 }, {}, { "size": "3" }])), Ok(vec![1, 0, 3]));
    assert!(sizes(json!("x")).is_err() && sizes(json!([1])).is_err());
    let limits = |value: Value| {
        let read = read(&json!({ "limits": value })).ok()?;
        Some(read.limits.iter().map(|(name, text)| format!("{name}={text}")).collect::<Vec<_>>().join(" "))
    };
    for (value, expected) in [
        (json!({}), Some("")),
        (json!([{}]), Some("")),
        (json!([{ "a": 1 }, { "b": 2 }]), Some("a=1 b=2")),
        (json!([{ "a": 1 }, { "a": 2 }]), Some("a=2")),
        (json!([]), None),
        (json!([{ "a": 1 }, "b"]), None),
        (json!("a"), None),
    ] {
        assert_eq!(limits(value.clone()).as_deref(), expected, "{value}");
    }
}
