//! The forwarder: one process per node that listens on those ports of the node that lead into networks of allocations,
//! and carries the connections on that arrive there.
//!
//! Few do: the kernel translates connections to such a port before a process could see them. What it translates no
//! second time are connections that a proxy of Services (kube-proxy) has already led to this node's own port.
//!
//! Input: orders over a Unix socket ([`ForwardOrder`]), and connections. Output: connections. An idle forwarder uses no
//! CPU. It outlives the agent, ends when it has nothing more to carry, and starts with nothing: the agent tells it
//! everything. Must never know allocations, Services, or what is in a connection.

mod carry;
mod control;
mod orders;
mod ports;
mod rights;
mod serve;
#[cfg(test)]
mod tests;

pub use control::Control;
pub use orders::{Forward, ForwardAnswer, ForwardOrder, RefusedForward};
pub use serve::run;
