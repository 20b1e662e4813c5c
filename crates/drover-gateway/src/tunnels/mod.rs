//! Tunnels that agents open, and exchanges through them.
//!
//! `listener` proves who dials and turns the connection round: from then on the agent is the server of HTTP/2 and the
//! gateway its client. `registry` knows which node is reached by which tunnel, `exchange` opens one stream for one
//! request. Must never know who asks, and what an exchange is about.

mod exchange;
mod executor;
mod listener;
mod registry;

pub(crate) use exchange::{ExchangeError, Place};
pub(crate) use listener::Listener;
pub(crate) use registry::Tunnels;
