//! Tunnels to the gateway: the agent dials each replica, proves its node by a token, and then answers what comes
//! through the connection with the code that answers its socket.
//!
//! Nothing dials the agent: it works behind any firewall. A gateway that fails, lies or is not there harms no task:
//! what comes is answered for one allocation at a time and nothing else of the node.
//!
//! `replicas` finds out whom to dial and whom to believe, `dial` does it, `dialer` reads
//! authorities again where a certificate is not believed, `serve` answers, `tunnels` keeps it so. Must
//! never know who asks the gateway, or what they may.

mod dial;
mod dialer;
mod replicas;
mod serve;
mod tunnels;

pub(crate) use dial::Door;
pub(crate) use dialer::Dialer;
#[cfg(test)]
pub(crate) use dialer::tests::unasked_store;
pub(crate) use drover_api::gateway::GatewayPort;
pub(crate) use tunnels::Tunnels;
