//! What is missing is named, and what is known not to exist is told apart from what was not asked for (B-061 too).

use super::{Needed, RenderAnswer, order, render, rendered};

/// B-061: a key that a map has not is an error with errMissingKey, and the mark of Go without.
#[test]
fn b_061_a_missing_key_blocks_or_prints_no_value() {
    let template = r#"{{ with secret "db-creds" }}{{ .Data.nothing }}{{ end }}"#;
    let mut order = order(template);
    assert_eq!(rendered(&order), Ok("<no value>".to_owned()));
    order.err_missing_key = true;
    let error = rendered(&order).expect_err("an error");
    assert!(error.contains("map has no entry for key \"nothing\""), "{error}");
    assert!(error.starts_with("config:1:"), "{error}");
}

fn missing(template: &str) -> (Vec<Needed>, Vec<Needed>) {
    let mut order = order(template);
    order.values.secrets.insert("gone".to_owned(), None);
    match render(&order) {
        RenderAnswer::Missing { needed, absent } => (needed.into_iter().collect(), absent.into_iter().collect()),
        other => panic!("nothing is missing: {other:?}"),
    }
}

#[test]
fn all_that_is_missing_is_named_at_once() {
    let text = |text: &str| text.to_owned();
    let template = r#"{{ key "app/none" }}{{ key "new/x" }}{{ secret "s/t" }}{{ secret "gone" }}{{ file "a" }}
        {{ range nomadService "web" }}{{ .Port }}{{ end }}{{ services }}{{ secrets "x" }}"#;
    let (needed, absent) = missing(template);
    let wanted = [
        Needed::Secret(text("s.t")),
        Needed::ConfigMap(text("new")),
        Needed::SecretNames,
        Needed::Service(text("web")),
        Needed::Services,
        Needed::File(text("a")),
    ];
    assert_eq!(needed, wanted);
    assert_eq!(absent, [Needed::Secret(text("gone")), Needed::ConfigMapKey(text("app"), text("none"))]);
}

#[test]
fn an_error_that_comes_of_what_is_missing_is_none() {
    let (needed, _) = missing(r#"{{ (secret "new").Data.password }}"#);
    assert_eq!(needed, [Needed::Secret("new".to_owned())]);
}

#[test]
fn what_may_be_absent_blocks_nothing() {
    let mut order =
        order(r#"{{ keyOrDefault "app/none" "d" }} {{ keyExists "app/none" }} {{ nomadVarExists "gone" }}"#);
    order.values.secrets.insert("gone".to_owned(), None);
    assert_eq!(rendered(&order), Ok("d false false".to_owned()));
}

#[test]
fn what_leads_out_of_a_template_is_refused_by_name() {
    for call in [r#"plugin "x""#, r#"writeToFile "a" "" "" "0644" "x""#, r#"executeTemplate "a""#] {
        let error = rendered(&order(&format!("{{{{ {call} }}}}"))).expect_err("an error");
        assert!(error.contains("function is disabled"), "{error}");
    }
}
