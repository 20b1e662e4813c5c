//! What a dispatch of a parameterized job may bring, and what it makes (`spec/scheduler.md` 1.6).
//!
//! A dispatch is a Job without groups that names its parent (`spec.dispatch`): what it runs is the parent's spec with
//! its own meta and payload. Input: the parent's spec and the dispatch. Output: what is wrong, or the whole spec. Must
//! never know how a job is created, nor whether a person, a command or Git made it.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use drover_api::job::{Dispatch, PayloadRule};
use drover_api::{JobSpec, names};

use crate::validate::{Violation, Violations};

/// Most bytes of a payload.
pub const PAYLOAD_LIMIT: usize = 16 * 1024;
/// Highest priority.
const PRIORITY_LIMIT: i64 = 100;

/// What is known of the parent of a dispatch.
#[derive(Clone, Copy, Debug)]
pub struct Parent<'a> {
    /// Its object's name.
    pub name: &'a str,
    /// Its spec; none where there is no such job.
    pub spec: Option<&'a JobSpec>,
    /// Whether it is stopped or being deleted.
    pub is_stopped: bool,
}

/// Whether a job is a dispatch whose groups are its parent's.
pub fn is_open(spec: &JobSpec) -> bool {
    spec.dispatch.is_some() && spec.groups.is_empty()
}

/// All that is wrong with a dispatch. O(meta and payload).
pub fn violations(parent: Parent<'_>, own: &JobSpec) -> Vec<Violation> {
    let mut found = Violations::default();
    let field = format_args!("spec.dispatch.parent");
    let name = parent.name;
    let Some(spec) = parent.spec else {
        let message =
            format_args!("{name} is no job of this namespace; create the parameterized job, or correct the name");
        found.when(true, "NotFound", field, message);
        return found.finish();
    };
    let Some(rules) = &spec.parameterized else {
        let message = format_args!("{name} is not parameterized; only a job with spec.parameterized can be dispatched");
        found.when(true, "NotParameterized", field, message);
        return found.finish();
    };
    let message = format_args!("{name} is stopped; start it, then dispatch again");
    found.when(parent.is_stopped, "Stopped", field, message);
    found.when(
        own.r#type != spec.r#type,
        "DispatchType",
        format_args!("spec.type"),
        format_args!("is {}, and {name} is of type {}; take that one", own.r#type, spec.r#type),
    );
    found.payload(rules.payload, own);
    found.given_meta(&rules.meta_required, &rules.meta_optional, own);
    let priority = own.dispatch.as_ref().and_then(|dispatch| dispatch.priority).unwrap_or(spec.priority);
    let message = format_args!("{priority} is outside 1 to {PRIORITY_LIMIT}; take a value between");
    let is_outside = !(1..=PRIORITY_LIMIT).contains(&priority);
    found.when(is_outside, "PriorityRange", format_args!("spec.dispatch.priority"), message);
    found.only_own_fields(own);
    found.finish()
}

impl Violations {
    fn payload(&mut self, rule: PayloadRule, own: &JobSpec) {
        let field = format_args!("spec.dispatch.payload");
        let payload = match payload(own) {
            Ok(payload) => payload,
            Err(reason) => {
                let message = format_args!("is no base64: {reason}; encode it, as with base64 -w0");
                return self.when(true, "PayloadEncoding", field, message);
            }
        };
        let secret = own.dispatch.as_ref().map_or("", |dispatch| &dispatch.payload_secret);
        self.payload_once(own);
        let is_given = !payload.is_empty() || !secret.is_empty();
        let is_missing = rule == PayloadRule::Required && !is_given;
        self.when(is_missing, "PayloadRequired", field, "is missing, and the job requires one; give a payload");
        let is_forbidden = rule == PayloadRule::Forbidden && is_given;
        self.when(is_forbidden, "PayloadForbidden", field, "is given, and the job takes none; leave it out");
        let size = payload.len();
        let message = format_args!("has {size} bytes, above {PAYLOAD_LIMIT}; pass a reference to it in meta instead");
        self.when(size > PAYLOAD_LIMIT, "PayloadTooLarge", field, message);
    }

    /// A dispatch has one payload.
    pub(crate) fn payload_once(&mut self, own: &JobSpec) {
        let is_twice =
            own.dispatch.as_ref().is_some_and(|own| !own.payload.is_empty() && !own.payload_secret.is_empty());
        let message = "is given beside payload; a dispatch has one payload: remove one of them";
        self.when(is_twice, "PayloadTwice", format_args!("spec.dispatch.payloadSecret"), message);
    }

    fn given_meta(&mut self, required: &[String], optional: &[String], own: &JobSpec) {
        let field = format_args!("spec.meta");
        let known: BTreeSet<&String> = required.iter().chain(optional).collect();
        let unknown: Vec<&str> = own.meta.keys().filter(|key| !known.contains(key)).map(String::as_str).collect();
        let permitted: Vec<&str> = known.iter().map(|key| key.as_str()).collect();
        let message = format_args!(
            "has {}, which the job does not take; it takes {}",
            unknown.join(", "),
            if permitted.is_empty() { "none".to_owned() } else { permitted.join(", ") }
        );
        self.when(!unknown.is_empty(), "MetaNotPermitted", field, message);
        let missing: Vec<&str> =
            required.iter().filter(|key| !own.meta.contains_key(*key)).map(String::as_str).collect();
        let message = format_args!("lacks {}, which the job requires; give them", missing.join(", "));
        self.when(!missing.is_empty(), "MetaMissing", field, message);
    }

    /// A field that would be ignored is refused: its author means something by it.
    fn only_own_fields(&mut self, own: &JobSpec) {
        for (block, is_given) in [
            ("constraints", !own.constraints.is_empty()),
            ("affinities", !own.affinities.is_empty()),
            ("spreads", !own.spreads.is_empty()),
            ("update", own.update.is_some()),
            ("periodic", own.periodic.is_some()),
            ("parameterized", own.parameterized.is_some()),
            ("multiregion", own.multiregion.is_some()),
        ] {
            let message = "is the parent's for a dispatched job; remove it, or set it there";
            self.when(is_given, "DispatchField", format_args!("spec.{block}"), message);
        }
    }
}

/// The payload of a dispatched job; empty where it has none.
///
/// # Errors
/// Why it is no base64.
pub fn payload(spec: &JobSpec) -> Result<Vec<u8>, String> {
    let text = spec.dispatch.as_ref().map_or("", |dispatch| &dispatch.payload);
    STANDARD.decode(text).map_err(|error| error.to_string())
}

/// A payload as `spec.dispatch.payload` holds it.
pub fn encoded(payload: &[u8]) -> String {
    STANDARD.encode(payload)
}

/// What a dispatch runs: the parent's spec with the dispatch's own id, meta and payload. Meta that the dispatch may
/// give and does not is empty, so that references to it are known.
pub fn whole(parent: &JobSpec, own: &JobSpec, name: &str) -> JobSpec {
    let rules = parent.parameterized.clone().unwrap_or_default();
    let mut meta = parent.meta.clone();
    for key in rules.meta_optional {
        meta.entry(key).or_default();
    }
    meta.extend(own.meta.clone());
    let priority = own.dispatch.as_ref().and_then(|dispatch| dispatch.priority);
    JobSpec {
        id: own.id_or(name).to_owned(),
        name: own.name.clone(),
        priority: priority.unwrap_or(parent.priority),
        stop: own.stop,
        scale: own.scale.clone(),
        meta,
        parameterized: None,
        dispatch: own.dispatch.clone(),
        ..parent.clone()
    }
}

/// What a dispatch is made of: the parent's type, and what the dispatch brings itself. Its id and its priority are left
/// to who makes it.
pub fn open(parent: &JobSpec, meta: BTreeMap<String, String>, dispatch: Dispatch) -> JobSpec {
    JobSpec { r#type: parent.r#type, meta, dispatch: Some(dispatch), ..JobSpec::unset() }
}

/// Id and object name of a dispatch that a command makes.
pub fn child_names(parent_name: &str, parent: &JobSpec, prefix: &str, unix: i64, tag: &str) -> (String, String) {
    let infix = if prefix.is_empty() { String::new() } else { format!("{prefix}-") };
    let suffix = format!("dispatch-{infix}{unix}-{tag}");
    (format!("{}/{suffix}", parent.id_or(parent_name)), names::child_name(parent_name, &suffix))
}

/// The id of the job that a job was made from, for the tasks of the latter.
pub fn parent_id(spec: &JobSpec) -> Option<&str> {
    let of_id =
        spec.id.rsplit_once("/periodic-").or_else(|| spec.id.rsplit_once("/dispatch-")).map(|(parent, _)| parent);
    of_id.or_else(|| spec.dispatch.as_ref().map(|dispatch| dispatch.parent.as_str()))
}

#[cfg(test)]
mod tests {
    mod words;

    use drover_api::job::JobType;
    use serde_json::{Value, json};

    use super::*;

    fn spec(value: &Value) -> JobSpec {
        serde_json::from_value(value.clone()).unwrap()
    }

    fn parent(rules: &Value) -> JobSpec {
        spec(&json!({
            "type": "batch", "priority": 70, "parameterized": rules, "meta": { "team": "a", "who": "nobody" },
            "groups": [{ "name": "g", "tasks": [{ "name": "t", "driver": "mock" }] }] }))
    }

    fn own(meta: &Value, payload: &[u8]) -> JobSpec {
        spec(
            &json!({ "type": "batch", "meta": meta, "groups": [], "dispatch": { "parent": "p", "payload": encoded(payload) } }),
        )
    }

    fn codes(parent: Option<&JobSpec>, is_stopped: bool, own: &JobSpec) -> Vec<&'static str> {
        let parent = Parent { name: "p", spec: parent, is_stopped };
        violations(parent, own).iter().map(|violation| violation.code).collect()
    }

    #[test]
    fn s_190_meta_and_payload_are_held_against_the_parents_rules() {
        let rules = parent(&json!({ "metaRequired": ["who", "what"], "metaOptional": ["when"] }));
        let all = json!({ "who": "x", "what": "y" });
        assert_eq!(codes(Some(&rules), false, &own(&all, b"hello")), Vec::<&str>::new());
        let extra = json!({ "who": "x", "what": "y", "where": "z" });
        assert_eq!(codes(Some(&rules), false, &own(&extra, b"")), ["MetaNotPermitted"]);
        assert_eq!(codes(Some(&rules), false, &own(&json!({ "who": "x" }), b"")), ["MetaMissing"]);
        assert_eq!(codes(Some(&rules), false, &own(&all, &vec![b'x'; 17 * 1024])), ["PayloadTooLarge"]);
        assert_eq!(codes(Some(&rules), false, &own(&all, &vec![b'x'; 16 * 1024])), Vec::<&str>::new());
    }

    #[test]
    fn every_violation_is_told_at_once_with_its_keys() {
        let rules = parent(&json!({ "payload": "required", "metaRequired": ["a", "b"] }));
        let told = violations(
            Parent { name: "p", spec: Some(&rules), is_stopped: true },
            &own(&json!({ "x": "1", "y": "2" }), b""),
        );
        let codes: Vec<_> = told.iter().map(|violation| violation.code).collect();
        assert_eq!(codes, ["Stopped", "PayloadRequired", "MetaNotPermitted", "MetaMissing"]);
        assert!(told[2].message.contains("x, y") && told[3].message.contains("a, b"), "{told:?}");
    }

    #[test]
    fn a_payload_may_stand_in_a_secret_and_is_given_once() {
        let by_secret = |payload: &[u8]| {
            let mut own = own(&json!({}), payload);
            own.dispatch.as_mut().unwrap().payload_secret = "order".to_owned();
            own
        };
        let of = |rule: &str| parent(&json!({ "payload": rule }));
        assert_eq!(codes(Some(&of("required")), false, &by_secret(b"")), Vec::<&str>::new());
        assert_eq!(codes(Some(&of("required")), false, &by_secret(b"x")), ["PayloadTwice"]);
        assert_eq!(codes(Some(&of("forbidden")), false, &by_secret(b"")), ["PayloadForbidden"]);
    }

    #[test]
    fn a_parent_must_be_there_and_take_dispatches() {
        let plain = JobSpec { parameterized: None, ..parent(&json!({})) };
        assert_eq!(codes(None, false, &own(&json!({}), b"")), ["NotFound"]);
        assert_eq!(codes(Some(&plain), false, &own(&json!({}), b"")), ["NotParameterized"]);
        let forbids = parent(&json!({ "payload": "forbidden" }));
        assert_eq!(codes(Some(&forbids), false, &own(&json!({}), b"x")), ["PayloadForbidden"]);
        let mut odd = own(&json!({}), b"");
        odd.dispatch.as_mut().unwrap().priority = Some(101);
        odd.dispatch.as_mut().unwrap().payload = "%".to_owned();
        odd.update = Some(drover_api::policy::Update::default());
        odd.r#type = JobType::Sysbatch;
        let wanted = ["DispatchType", "PayloadEncoding", "PriorityRange", "DispatchField"];
        assert_eq!(codes(Some(&parent(&json!({}))), false, &odd), wanted);
    }

    #[test]
    fn a_dispatch_runs_its_parents_spec_with_its_own_meta_over_the_parents() {
        let rules = parent(&json!({ "metaOptional": ["who", "when"] }));
        let made = whole(&rules, &own(&json!({ "who": "me" }), b"x"), "p-dispatch-1");
        let meta: Vec<(&str, &str)> = made.meta.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(meta, [("team", "a"), ("when", ""), ("who", "me")]);
        assert_eq!((made.priority, made.groups.len(), made.parameterized), (70, 1, None));
        assert_eq!(made.id, "p-dispatch-1");
    }

    #[test]
    fn a_dispatch_is_named_after_its_parent_its_time_and_chance() {
        let spec = JobSpec { id: "Report".to_owned(), ..parent(&json!({})) };
        let names = child_names("report", &spec, "eu", 1_700_000_000, "0a1b2c3d");
        assert_eq!(names.0, "Report/dispatch-eu-1700000000-0a1b2c3d");
        assert_eq!(names.1, "report-dispatch-eu-1700000000-0a1b2c3d");
        let child = JobSpec { id: names.0, ..spec };
        assert_eq!(parent_id(&child), Some("Report"));
    }
}
