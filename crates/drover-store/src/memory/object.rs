//! One state of one object: its JSON, and what was read from it once.

use std::any::Any;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::fields::Owners;
use super::kind::Kind;
use crate::store::Key;

/// One state of one object. It never changes.
pub struct Stored {
    /// Its kind.
    pub kind: &'static Kind,
    /// Its name.
    pub key: Key,
    /// The whole object.
    pub value: Value,
    /// Its resourceVersion.
    pub version: u64,
    pub(crate) owners: Owners,
    typed: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Debug for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stored").field("kind", &self.kind.name).field("value", &self.value).finish_non_exhaustive()
    }
}

impl Stored {
    pub(crate) fn new(kind: &'static Kind, key: Key, value: Value, version: u64, owners: Owners) -> Self {
        Self { kind, key, value, version, owners, typed: OnceLock::new() }
    }

    /// The same state with another version.
    pub(crate) fn at_version(&self, version: u64) -> Arc<Self> {
        let mut value = self.value.clone();
        value["metadata"]["resourceVersion"] = Value::String(version.to_string());
        Arc::new(Self::new(self.kind, self.key.clone(), value, version, self.owners.clone()))
    }

    /// The object as this type; it is read once. A second type for the same object is an error; one that it cannot be
    /// read as leaves it to others.
    ///
    /// # Errors
    /// When it cannot be read as this type.
    pub fn typed<K: DeserializeOwned + Send + Sync + 'static>(&self) -> Result<&K, String> {
        if self.typed.get().is_none() {
            let object = K::deserialize(&self.value).map_err(|error| error.to_string())?;
            // Another thread that was first has read the same.
            drop(self.typed.set(Box::new(object)));
        }
        let object = self.typed.get().and_then(|object| object.downcast_ref());
        object.ok_or_else(|| format!("{} was read as another type", self.key))
    }

    /// Its uid.
    pub fn uid(&self) -> &str {
        self.value["metadata"]["uid"].as_str().unwrap_or_default()
    }

    /// Whether it is being deleted.
    pub fn is_deleting(&self) -> bool {
        !self.value["metadata"]["deletionTimestamp"].is_null()
    }

    pub(crate) fn has_finalizers(&self) -> bool {
        self.value["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
    }

    /// The uids of its owners.
    pub(crate) fn owner_uids(&self) -> impl Iterator<Item = &str> {
        let owners = self.value["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        owners.filter_map(|owner| owner["uid"].as_str())
    }

    /// The text of a field, empty where it is absent.
    pub fn text(&self, path: &[String]) -> &str {
        let mut value = &self.value;
        for name in path {
            value = &value[name.as_str()];
        }
        value.as_str().unwrap_or_default()
    }
}
