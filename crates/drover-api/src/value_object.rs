//! Secrets and `ConfigMaps` as agent and gateway name them to each other.

use serde::{Deserialize, Serialize};

/// What kind of object holds values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ValueKind {
    /// A Secret.
    Secret,
    /// A `ConfigMap`.
    ConfigMap,
}

/// An object of the job's namespace whose values tasks use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ValueObject {
    /// Its kind.
    pub kind: ValueKind,
    /// Its name.
    pub name: String,
}

impl std::fmt::Display for ValueObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {}", self.kind, self.name)
    }
}
