//! What agent and gateway agree on: how a connection becomes a tunnel, and how an exchange names its allocation.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The protocol that the connection becomes.
pub const PROTOCOL: &str = "drover-tunnel/1";
/// Where an agent asks for a tunnel, by POST.
pub const TUNNEL_PATH: &str = "/tunnel/v1";
/// Where a gateway begins an exchange in a tunnel, by POST.
pub const EXCHANGE_PATH: &str = "/exchange/v1";
/// Where a gateway tells an agent of its replicas, by POST; the body is [`Replicas`].
pub const REPLICAS_PATH: &str = "/replicas/v1";
/// The longest of such tellings, in bytes.
pub const MAX_REPLICAS_BYTES: usize = 16 * 1024;
/// The header of an exchange with its allocation's namespace.
pub const NAMESPACE_HEADER: &str = "drover-namespace";
/// The header of an exchange with its allocation's uid.
pub const ALLOCATION_HEADER: &str = "drover-allocation";
/// How often an agent tries a tunnel through which nothing comes.
pub const PING_EVERY: Duration = Duration::from_secs(10);
/// How long the other side may take to answer.
pub const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// What an exchange may have under way, in bytes.
pub const STREAM_WINDOW: u32 = 256 * 1024;
/// What all exchanges of a tunnel may, in bytes.
pub const CONNECTION_WINDOW: u32 = 64 * STREAM_WINDOW;
/// What waits for a slow side in one exchange, in bytes; then its source waits.
pub const UNSENT_BYTES: usize = 64 * 1024;

/// What a replica of the gateway tells the agents that have a tunnel to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Replicas {
    /// Where agents are answered, by each replica that is ready; none: it is not known.
    #[serde(default)]
    pub ready: Vec<SocketAddr>,
    /// This replica ends: what is under way goes on for a while, and nothing more begins.
    #[serde(default)]
    pub is_leaving: bool,
}
