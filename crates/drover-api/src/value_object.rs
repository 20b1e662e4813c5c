//! Secrets, `ConfigMaps` and identities as agent and gateway name them to each other.

use serde::{Deserialize, Serialize};

/// What kind of thing holds values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ValueKind {
    /// A Secret.
    Secret,
    /// A `ConfigMap`.
    ConfigMap,
    /// An identity of a task, which the gateway signs: its only value is [`TOKEN`].
    Identity,
}

/// The key of an identity's token.
pub const TOKEN: &str = "token";

/// What tasks get from the gateway: an object of the job's namespace, or an identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ValueObject {
    /// Its kind.
    pub kind: ValueKind,
    /// Its name; of an identity `task/identity`.
    pub name: String,
}

impl ValueKind {
    fn name(self) -> &'static str {
        match self {
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
            Self::Identity => "identity",
        }
    }
}

impl ValueObject {
    /// By what it is known in `status.taskStates[].values`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.kind.name(), self.name)
    }
}

impl std::fmt::Display for ValueObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.name)
    }
}
