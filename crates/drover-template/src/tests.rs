//! Tests of the engine: alone, and against consul-template.

use std::collections::BTreeMap;

use crate::{
    Needed, RenderAnswer, RenderLimit, RenderLimits, RenderOrder, ServiceInstance, ValueBytes, Values, render,
};

mod cases;
mod generated;
mod limits;
mod missing;
mod oracle;

/// An order with values that all tests know.
fn order(template: &str) -> RenderOrder {
    RenderOrder {
        name: "config".to_owned(),
        template: template.into(),
        left_delimiter: String::new(),
        right_delimiter: String::new(),
        err_missing_key: false,
        values: values(),
        now: jiff::Timestamp::UNIX_EPOCH,
        // On a busy machine any amount of work may take longer than it usually may.
        limits: RenderLimits { seconds: 600, ..RenderLimits::USUAL },
    }
}

fn values() -> Values {
    let keys = |pairs: &[(&str, &str)]| -> Option<BTreeMap<String, ValueBytes>> {
        Some(pairs.iter().map(|(key, value)| ((*key).to_owned(), ValueBytes::from(*value))).collect())
    };
    let instance = |n: i64, tags: &[&str]| ServiceInstance {
        id: format!("id-{n}"),
        node: format!("n-{n}"),
        address: format!("10.0.0.{n}"),
        port: 8080 + n,
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        datacenter: "dc1".to_owned(),
        job: "shop/api".to_owned(),
        allocation: format!("alloc-{n}"),
    };
    Values {
        env: [("A", "b"), ("EMPTY", ""), ("PORT", "8080")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        secrets: [
            ("db-creds".to_owned(), keys(&[("user", "admin"), ("password", "p<w>\"d")])),
            ("nomad.jobs.web".to_owned(), keys(&[("a", "1"), ("b", "two")])),
        ]
        .into(),
        config_maps: [
            ("app".to_owned(), keys(&[("x", "1"), ("y", "two"), ("json", r#"{"a":[1,2.5,"x"],"b":{"c":null}}"#)])),
            ("other".to_owned(), keys(&[("list", "c,a,b")])),
        ]
        .into(),
        services: [
            ("api".to_owned(), vec![instance(1, &["v1", "east"]), instance(2, &["v1"])]),
            ("none".to_owned(), vec![]),
        ]
        .into(),
        ..Values::default()
    }
}

/// The text, or the error.
fn rendered(order: &RenderOrder) -> Result<String, String> {
    match render(order) {
        RenderAnswer::Rendered(text) => Ok(String::from_utf8_lossy(&text.0).into_owned()),
        RenderAnswer::Failed(error) => Err(error.to_string()),
        RenderAnswer::Missing { needed, absent } => Err(format!("missing {needed:?} {absent:?}")),
    }
}
