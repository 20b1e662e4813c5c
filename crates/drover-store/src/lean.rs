//! How objects are read from what the API server sends: without the record of who wrote which field, which can be
//! longer than the object and which nothing here asks for, and so that one object that cannot be read does not stop the
//! others.
//!
//! Must never know what the objects mean.

use std::borrow::Cow;

use kube::Resource;
use kube::core::{ObjectMeta, PartialObjectMeta};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// An object without the record of its writers, or what is known of one that cannot be read. Comes from JSON text only.
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

/// The text of an object, with nothing in the place of its `metadata.managedFields`.
fn without_writers(text: &str) -> Cow<'_, str> {
    let found = serde_json::from_str::<Outline<'_>>(text).ok().and_then(|outline| outline.metadata?.by);
    let Some(found) = found.map(RawValue::get) else { return Cow::Borrowed(text) };
    // What was found is a part of the text.
    let begin = found.as_ptr() as usize - text.as_ptr() as usize;
    Cow::Owned([&text[..begin], "null", &text[begin + found.len()..]].concat())
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
