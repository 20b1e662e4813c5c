//! Everything that a template may look at, and what of it was missing.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes that mostly are text: in JSON a string, or else an object with `base64`.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValueBytes(pub Vec<u8>);

/// What a template may look at. In the maps of objects, a name without an entry was not asked for yet, and one with
/// none is known not to exist.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Values {
    /// The task's environment, with what the node tells of itself.
    pub env: BTreeMap<String, String>,
    /// Secrets by name, and their keys.
    pub secrets: BTreeMap<String, Option<BTreeMap<String, ValueBytes>>>,
    /// `ConfigMap`s by name, and their keys.
    pub config_maps: BTreeMap<String, Option<BTreeMap<String, ValueBytes>>>,
    /// Names of the Secrets that the job may read; none: not asked for yet.
    pub secret_names: Option<BTreeSet<String>>,
    /// Instances of services by name; one without instances has an empty list.
    pub services: BTreeMap<String, Vec<ServiceInstance>>,
    /// All services with their tags; none: not asked for yet.
    pub service_tags: Option<BTreeMap<String, Vec<String>>>,
    /// Files of the sandbox by path.
    pub files: BTreeMap<String, Option<ValueBytes>>,
}

/// Where a service is served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceInstance {
    /// Its id.
    pub id: String,
    /// Its node.
    pub node: String,
    /// Its address.
    pub address: String,
    /// Its port.
    pub port: i64,
    /// Its tags.
    pub tags: Vec<String>,
    /// The datacenter of its node.
    pub datacenter: String,
    /// The job that serves it.
    pub job: String,
    /// The allocation that serves it.
    pub allocation: String,
}

/// Something that a template looks at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Needed {
    /// A Secret.
    Secret(String),
    /// A `ConfigMap`.
    ConfigMap(String),
    /// A key of a `ConfigMap` that is there.
    ConfigMapKey(String, String),
    /// The names of the Secrets.
    SecretNames,
    /// Instances of a service.
    Service(String),
    /// The names of the services.
    Services,
    /// A file of the sandbox.
    File(String),
}

impl std::fmt::Debug for ValueBytes {
    /// Nothing of it: it may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl From<&str> for ValueBytes {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Wire {
    Text(String),
    Bytes { base64: String },
}

impl Serialize for ValueBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => Wire::Bytes { base64: STANDARD.encode(&self.0) }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ValueBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match Wire::deserialize(deserializer)? {
            Wire::Text(text) => text.into_bytes(),
            Wire::Bytes { base64 } => STANDARD.decode(base64).map_err(serde::de::Error::custom)?,
        }))
    }
}
