//! How objects are read from what the API server sends: without the record of who wrote which field, which can be
//! longer than the object, but for the writers of `spec.stop`, whom people ask for; and so that one object that cannot
//! be read does not stop the others.
//!
//! Must never know what the objects mean.

use std::borrow::Cow;

use kube::Resource;
use kube::core::{ObjectMeta, PartialObjectMeta};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The one field whose writers are kept, as the record names it, below `f:spec`.
const KEPT_FIELD: &str = "f:stop";

/// An object without the record of its writers, but for those of `spec.stop`, or what is known of one that cannot be
/// read. Comes from JSON text only.
#[derive(Clone, Debug)]
pub struct Lean<K>(pub(super) Result<K, Unreadable>);

/// An object that does not have the shape of its kind.
#[derive(Clone, Debug)]
pub(super) struct Unreadable {
    /// Why.
    pub(super) reason: String,
    /// Its metadata, which is like that of any object.
    pub(super) metadata: ObjectMeta,
}

#[derive(Deserialize)]
struct Outline<'a> {
    #[serde(borrow)]
    metadata: Option<Written<'a>>,
}

#[derive(Deserialize)]
struct Written<'a> {
    #[serde(borrow, rename = "managedFields")]
    by: Option<&'a RawValue>,
}

impl<'de, K: Resource + DeserializeOwned> Deserialize<'de> for Lean<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let text = without_writers(text.get());
        match serde_json::from_str(&text) {
            Ok(object) => Ok(Self(Ok(object))),
            Err(error) => {
                let partial: PartialObjectMeta<K> = serde_json::from_str(&text).map_err(D::Error::custom)?;
                Ok(Self(Err(Unreadable { reason: error.to_string(), metadata: partial.metadata })))
            }
        }
    }
}

/// The text of an object, with the writers of `spec.stop` alone in its `metadata.managedFields`; mostly there is none,
/// and nothing but a search for that word is done.
fn without_writers(text: &str) -> Cow<'_, str> {
    let found = serde_json::from_str::<Outline<'_>>(text).ok().and_then(|outline| outline.metadata?.by);
    let Some(found) = found.map(RawValue::get) else { return Cow::Borrowed(text) };
    // What was found is a part of the text.
    let begin = found.as_ptr() as usize - text.as_ptr() as usize;
    Cow::Owned([&text[..begin], &kept_writers(found), &text[begin + found.len()..]].concat())
}

/// What stays of the record of writers, as JSON.
fn kept_writers(record: &str) -> Cow<'static, str> {
    if !record.contains(KEPT_FIELD) {
        return Cow::Borrowed("null");
    }
    let Ok(mut writers) = serde_json::from_str::<Vec<Value>>(record) else { return Cow::Borrowed("null") };
    writers.retain_mut(|writer| {
        let is_kept = writer["fieldsV1"]["f:spec"].get(KEPT_FIELD).is_some();
        writer["fieldsV1"] = json!({ "f:spec": { KEPT_FIELD: {} } });
        is_kept
    });
    Cow::Owned(Value::Array(writers).to_string())
}

impl<K: Resource> Resource for Lean<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &Self::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &Self::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|unreadable| &unreadable.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|unreadable| &mut unreadable.metadata, K::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use drover_api::ClientNode;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::WatchEvent;
    use serde_json::json;

    use super::*;

    #[test]
    fn who_wrote_what_is_not_kept_and_the_rest_is() {
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "managedFields": [{ "manager": "a \"b\" ]", "fieldsV1": { "f:data": {} } }], "name": "x" },
            "data": { "managedFields": "[1]" } });
        let event = json!({ "type": "ADDED", "object": object }).to_string();
        let WatchEvent::Added(Lean(Ok(map))) = serde_json::from_str::<WatchEvent<Lean<ConfigMap>>>(&event).unwrap()
        else {
            panic!("no object");
        };
        assert_eq!(map.metadata.managed_fields, None);
        assert_eq!(map.metadata.name.as_deref(), Some("x"));
        assert_eq!(map.data.unwrap()["managedFields"], "[1]");
    }

    #[test]
    fn who_wrote_that_a_job_is_stopped_is_kept_alone() {
        let writer =
            |manager: &str, fields: Value| json!({ "manager": manager, "operation": "Update", "fieldsV1": fields });
        let object = json!({ "metadata": { "managedFields": [
            writer("a", json!({ "f:spec": { "f:groups": {} } })),
            writer("b", json!({ "f:spec": { "f:groups": {}, "f:stop": {} } })),
            writer("c", json!({ "f:status": { "f:stop": {} } })),
        ] } });
        let text = object.to_string();
        let left: Value = serde_json::from_str(&without_writers(&text)).unwrap();
        let kept = json!([writer("b", json!({ "f:spec": { "f:stop": {} } }))]);
        assert_eq!(left["metadata"]["managedFields"], kept);
    }

    #[test]
    fn an_object_that_cannot_be_read_is_named() {
        let text = json!({ "metadata": { "name": "n", "managedFields": [] }, "spec": 7 }).to_string();
        let Lean::<ClientNode>(Err(unreadable)) = serde_json::from_str(&text).unwrap() else { panic!("it was read") };
        assert_eq!(unreadable.metadata.name.as_deref(), Some("n"));
        assert!(unreadable.reason.contains("invalid type"), "{}", unreadable.reason);
    }

    #[test]
    fn text_without_writers_is_not_copied() {
        assert!(matches!(without_writers("{\"metadata\":{\"name\":\"n\"}}"), Cow::Borrowed(_)));
        assert!(matches!(without_writers("[1]"), Cow::Borrowed(_)));
        assert!(matches!(without_writers("{}"), Cow::Borrowed(_)));
    }
}
