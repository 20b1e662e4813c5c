//! What the agent's configuration says of allocations' networks.

use std::path::PathBuf;

use drover_network::Subnet;
use serde::Deserialize;

/// Networks of allocations.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NetworkConfig {
    /// The addresses of networks in mode bridge, as `172.26.64.0/20`; none: the node has no bridge and does not offer
    /// the mode. The chart sets it.
    pub bridge_subnet: Option<Subnet>,
    /// The folder of CNI network configurations, for mode cni; none: it is not offered.
    pub cni_config_dir: Option<PathBuf>,
    /// The folder of CNI plugins.
    pub cni_bin_dir: PathBuf,
    /// Whose name servers tasks in such networks ask, unless their job names its own.
    pub dns: DnsSource,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            bridge_subnet: None,
            cni_config_dir: None,
            cni_bin_dir: PathBuf::from("/opt/cni/bin"),
            dns: DnsSource::default(),
        }
    }
}

/// Whose name servers tasks ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DnsSource {
    /// The cluster's, as the agent's pod has them; names without a dot are looked for in the job's namespace.
    Cluster,
    /// The node's.
    #[default]
    Node,
}
