//! The script's calls to the simulator's store.

use drover_store::memory::{
    Caller, FieldSelection, Kind, MemoryStore, Refusal, Stored, Target, Unknown, WatchEvent, Write,
};
use drover_store::{Key, Ownership, Precondition};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::script::{Call, NS};
use super::{Refused, Server};

/// The simulator's store.
#[derive(Default)]
pub(super) struct InMemory {
    store: MemoryStore,
}

impl Server for InMemory {
    async fn call(&mut self, call: &Call) -> Result<Value, Refused> {
        self.answer(call).map_err(|refusal| Refused(reason(&refusal).to_owned()))
    }
}

fn reason(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::NotFound(_) => "NotFound",
        Refusal::AlreadyExists(_) => "AlreadyExists",
        Refusal::Conflict(_) => "Conflict",
        Refusal::Invalid(_) => "Invalid",
        Refusal::BadRequest(_) => "BadRequest",
        Refusal::Forbidden(_) => "Forbidden",
        Refusal::Expired(_) => "Expired",
    }
}

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

fn kind(name: &str) -> &'static Kind {
    drover_store::memory::kind(name).expect("a kind of the simulator")
}

fn key(kind: &Kind, name: &str) -> Key {
    Key { namespace: kind.is_namespaced.then(|| NS.to_owned()), name: name.to_owned() }
}

fn caller(manager: &str) -> Caller<'_> {
    Caller { manager, now: now() }
}

/// The precondition that stands in the metadata of a body, or alone.
fn precondition(meta: &Value) -> Precondition {
    let text = |name: &str| meta[name].as_str().map(str::to_owned);
    Precondition { uid: text("uid"), resource_version: text("resourceVersion") }
}

fn selection(kind: &Kind, fields: &str) -> Result<FieldSelection, Refusal> {
    let namespace = kind.is_namespaced.then_some(NS);
    FieldSelection::parse(kind, namespace, Some(fields)).map_err(Refusal::BadRequest)
}

fn written(write: &Write) -> Value {
    write.object.value.clone()
}

fn event(event: &WatchEvent) -> Value {
    match event {
        WatchEvent::Put(object) => json!({ "type": "put", "object": object.value }),
        WatchEvent::Gone(object) => json!({ "type": "gone", "object": object.value }),
    }
}

impl InMemory {
    fn answer(&self, call: &Call) -> Result<Value, Refusal> {
        let store = &self.store;
        match call {
            Call::Create { kind: name, body } => {
                store.create(kind(name), body.clone(), Unknown::Drop, caller("t")).map(|write| written(&write))
            }
            Call::Replace { kind: name, change, .. } => {
                store.replace(kind(name), change.clone(), caller("t")).map(|write| written(&write))
            }
            Call::Merge { kind: of, name, part: to, body } => {
                let of = kind(of);
                let condition = precondition(&body["metadata"]);
                let target = Target { kind: of, key: &key(of, name), part: *to, precondition: &condition };
                store.merge(target, body, caller("t")).map(|write| written(&write))
            }
            Call::Apply { kind: of, name, part: to, manager, is_forced, body } => {
                let of = kind(of);
                let condition = precondition(&body["metadata"]);
                let body = body.clone();
                let target = Target { kind: of, key: &key(of, name), part: *to, precondition: &condition };
                let ownership = if *is_forced { Ownership::Force } else { Ownership::Yield };
                store.apply(target, body, ownership, caller(manager)).map(|write| written(&write))
            }
            Call::Delete { kind: of, name, precondition: condition } => {
                let of = kind(of);
                store.delete(of, &key(of, name), &precondition(condition), now()).map(|_| json!({}))
            }
            Call::Get { kind: of, name } => {
                let found = store.get(kind(of), &key(kind(of), name));
                found.map(|stored| stored.value.clone()).ok_or_else(|| Refusal::NotFound((*name).to_owned()))
            }
            Call::List { kind: of, fields, limit, from } => {
                let from = from.as_str().filter(|token| !token.is_empty());
                let page = store.page(kind(of), &selection(kind(of), fields)?, *limit, from)?;
                let items: Vec<&Value> = page.objects.iter().map(|object| &object.value).collect();
                Ok(json!({ "items": items, "token": page.next, "remaining": page.remaining }))
            }
            Call::Watch { kind: of, fields, after } => {
                let after = after.as_str().and_then(|after| after.parse().ok()).expect("a version");
                let mut watch = store.watch(kind(of), &selection(kind(of), fields)?, after)?;
                let events = std::iter::from_fn(|| watch.try_next());
                Ok(json!({ "events": events.map(|one| event(&one)).collect::<Vec<_>>() }))
            }
            Call::WatchInitial { kind: of, fields } => {
                let (objects, _) = store.list_and_watch(kind(of), &selection(kind(of), fields)?, None)?;
                let put = |object: &std::sync::Arc<Stored>| json!({ "type": "put", "object": object.value });
                let events: Vec<Value> = objects.iter().map(put).collect();
                Ok(json!({ "events": events, "bookmark": store.version().to_string() }))
            }
            Call::Compact => {
                store.compact();
                Ok(json!({}))
            }
        }
    }
}
