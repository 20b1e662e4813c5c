//! Networks and ports of a group.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::string_enum::string_enum;

string_enum! {
    /// How a group's tasks see the network.
    pub enum NetworkMode default Host {
        /// The host's own network.
        Host = "host",
        /// No network but loopback.
        None = "none",
        /// An own network namespace behind the node's bridge.
        Bridge = "bridge",
        /// An own network namespace made by a CNI network of the node, named in `cni.name`.
        Cni = "cni",
    }
}

impl NetworkMode {
    /// Whether the allocation has a network of its own, with an address.
    pub fn is_own(self) -> bool {
        match self {
            Self::Bridge | Self::Cni => true,
            Self::Host | Self::None => false,
        }
    }
}

/// A network that a group asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Network {
    /// How the group's tasks see the network; default host. All but host need a driver that isolates, as exec
    /// does; bridge and cni also nodes that offer them.
    pub mode: NetworkMode,
    /// Ports to hand out on the node, by label.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["label"]))]
    pub ports: Vec<Port>,
    /// Host name inside the network namespace (bridge and cni); may contain `${…}`. Default: the node's.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub hostname: String,
    /// DNS settings inside the network namespace (bridge and cni); what is left out is as the node's agent is
    /// configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<Dns>,
    /// The CNI network to join (mode cni).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cni: Option<Cni>,
    /// Deprecated: leave it out. Bandwidth in Mbit/s, accepted for old job files with a warning; it is not enforced.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub mbits: Option<i64>,
}

/// A port of a group. Tasks learn its number from `NOMAD_PORT_<label>`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    /// Its name, unique in the group; letters, digits, `_` and `-`.
    #[schemars(length(min = 1, max = 63))]
    pub label: String,
    /// The fixed number on the node. Absent: a free one from the node's dynamic range (20000-29999).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub r#static: Option<i64>,
    /// The number inside the network namespace (bridge and cni); -1 for the same one as on the node. Absent or 0: not
    /// mapped.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1, max = 65535))]
    pub to: Option<i64>,
    /// The node's network to take the port on, by its alias; default `default`. May contain `${…}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub host_network: Option<String>,
    /// Whether several allocations of a node may have this static port at the same time (SO_REUSEPORT); mode host only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignore_collision: bool,
}

/// DNS settings of a network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Dns {
    /// Name servers, by address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(max = 253)), extend("x-kubernetes-list-type" = "atomic"))]
    pub servers: Vec<String>,
    /// Search domains.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 253)), extend("x-kubernetes-list-type" = "atomic"))]
    pub searches: Vec<String>,
    /// Resolver options, as in resolv.conf.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 253)), extend("x-kubernetes-list-type" = "atomic"))]
    pub options: Vec<String>,
}

/// A CNI network of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Cni {
    /// The network's name in the node's CNI configuration.
    #[schemars(length(min = 1, max = 128))]
    pub name: String,
    /// Arguments handed to the CNI plugins, as `CNI_ARGS`; without `;` and `=`.
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub args: std::collections::BTreeMap<String, String>,
}
