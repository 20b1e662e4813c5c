//! Templates that people write, and some that they should not, one a line.

use std::fmt::Write as _;

use super::oracle::answers;
use super::{order, rendered};

const TEMPLATES: &str = include_str!("cases.txt");

const DELIMITED: &[(&str, &str, &str)] = &[
    ("[[", "]]", r#"[[ "a" ]] {{ x }} [[- 1 -]] [[/* c */]]"#),
    ("<%", "%>", "<% if true %>a<% end %>"),
    ("${", "}", r#"${ env "A" } ${"x"}"#),
    ("((", "))", "(( print (print 1) ))"),
    ("%", "%", "% 1 % a"),
    ("{{{", "}}}", "{{{ 1 }}} {{ 2 }}"),
    ("[[", "]]", r#"[[ index (split "," "a,b") 1 ]]"#),
];

/// B-059: each template alone, each action of it alone, and with other delimiters.
#[test]
fn b_059_templates_give_the_bytes_of_consul_template() {
    let mut orders: Vec<_> = TEMPLATES.lines().map(order).collect();
    for template in TEMPLATES.lines().filter(|template| !template.contains('$') && !template.contains("{{ end }}")) {
        let actions = template.split_inclusive("}}").map(str::trim).filter(|action| action.starts_with("{{ "));
        orders.extend(actions.map(order));
    }
    for (left, right, template) in DELIMITED {
        let mut order = order(template);
        (order.left_delimiter, order.right_delimiter) = ((*left).to_owned(), (*right).to_owned());
        orders.push(order);
    }
    assert!(orders.len() >= 200, "200 templates: {}", orders.len());
    let mut differing = String::new();
    for (order, expected) in orders.iter().zip(answers(&orders)) {
        let ours = rendered(order);
        let is_same = match (&ours, &expected) {
            (Ok(ours), Ok(expected)) => *ours == String::from_utf8_lossy(expected),
            (Err(_), Err(_)) => true,
            _ => false,
        };
        if !is_same {
            let text = String::from_utf8_lossy(&order.template.0);
            let expected = expected.map(|text| String::from_utf8_lossy(&text).into_owned());
            writeln!(differing, "{text}\n  ours  {ours:?}\n  Go's  {expected:?}").expect("a line");
        }
    }
    assert!(differing.is_empty(), "{differing}");
}
