//! Secrets, `ConfigMaps`, identities and services as agent and gateway name them to each other.

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
    /// What a service of the namespace leads to: a value for each ready instance, by its id.
    Service,
    /// Which services the namespace has: a value for each, by its name. There is one such object, without a name.
    Services,
    /// One of a newer agent, which this gateway does not know.
    #[serde(other)]
    Unknown,
}

/// The key of an identity's token.
pub const TOKEN: &str = "token";

/// What tasks get from the gateway: an object of the job's namespace, an identity, or what is known of services.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ValueObject {
    /// Its kind.
    pub kind: ValueKind,
    /// Its name; of an identity `task/identity`, of a service as the template writes it.
    pub name: String,
}

impl ValueKind {
    /// Whether it is of services, which no task lists.
    pub fn is_of_services(self) -> bool {
        matches!(self, Self::Service | Self::Services)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
            Self::Identity => "identity",
            Self::Service => "service",
            Self::Services => "services",
            Self::Unknown => "unknown",
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
        match self.kind {
            ValueKind::Services => f.write_str("the services"),
            kind => write!(f, "{} {}", kind.name(), self.name),
        }
    }
}
