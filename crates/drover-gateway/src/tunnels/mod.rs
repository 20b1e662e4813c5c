//! Tunnels that agents open, and exchanges through them.
//!
//! `listener` proves who dials and turns the connection round: from then on the agent is the server of HTTP/2 and the
//! gateway its client. `registry` knows which node is reached by which tunnel (`way`), `exchange` opens one
//! stream for one request. A replica that has no tunnel of a node asks the others (`peers`), and is carried by the one
//! that has it (`relay`): one hop, never further. `replicas` follows which others there are; agents are told of
//! changes. An agent's pings are answered below HTTP/2 (`pings`), and one that goes silent has its tunnel ended
//! (`silence`). The others are also asked to know what this one has written (`arrivals`). Must never know who asks, and
//! what an exchange is about.

mod arrivals;
mod exchange;
mod listener;
mod peers;
mod pings;
mod registry;
mod relay;
mod replicas;
mod silence;
mod way;

pub(crate) use arrivals::Arrivals;
pub(crate) use exchange::{ExchangeError, Place};
pub(crate) use listener::{Listener, ListenerParts};
pub(crate) use peers::{Nodes, Peers};
pub(crate) use registry::Tunnels;
pub(crate) use replicas::Fleet;
