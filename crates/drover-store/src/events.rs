//! Kubernetes Events (`events.k8s.io/v1`) about drover's objects (CONVENTIONS, section 7).

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::core::ObjectMeta;
use sha2::{Digest, Sha256};

use crate::store::Object;

/// Longest note that the API server accepts.
const NOTE_LIMIT: usize = 1024;

/// Whether an event is routine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Routine.
    Normal,
    /// Something is wrong.
    Warning,
}

/// What happened to an object.
#[derive(Clone, Debug)]
pub struct Happening<'a> {
    /// Routine or not.
    pub severity: Severity,
    /// What, in one word for programs.
    pub reason: &'static str,
    /// What was being done, as a verb.
    pub action: &'static str,
    /// What, for people.
    pub note: String,
    /// Tells repetitions of the same happening apart: two with equal object, reason and occasion are one event.
    pub occasion: &'a str,
}

/// The event of a happening. Its name follows from what it is about, so that a repeated create makes no second one.
///
/// `role` is `controller` or `agent`, `instance` the process.
pub fn event<K: Object>(about: &K, role: &str, instance: &str, happening: &Happening<'_>, now: Timestamp) -> Event {
    let meta = about.meta();
    let name = meta.name.clone().unwrap_or_default();
    let namespace = meta.namespace.clone().unwrap_or_else(|| "default".to_owned());
    let digest = Sha256::digest(
        [meta.uid.as_deref().unwrap_or_default(), happening.reason, happening.occasion].join("\0").as_bytes(),
    );
    let suffix = drover_api::names::hex(&digest[..8]);
    let short: String = name.chars().take(200).collect();
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{short}.{suffix}")),
            namespace: Some(namespace),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(now)),
        type_: Some(match happening.severity {
            Severity::Normal => "Normal".to_owned(),
            Severity::Warning => "Warning".to_owned(),
        }),
        reason: Some(happening.reason.to_owned()),
        action: Some(happening.action.to_owned()),
        note: Some(happening.note.chars().take(NOTE_LIMIT).collect()),
        reporting_controller: Some(format!("drover.dev/{role}")),
        reporting_instance: Some(instance.chars().take(128).collect()),
        regarding: Some(ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            name: Some(name),
            namespace: meta.namespace.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            ..ObjectReference::default()
        }),
        ..Event::default()
    }
}
