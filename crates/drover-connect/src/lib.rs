//! Clients of the API server whose requests leave at once.
//!
//! Input: a configuration of kube. Output: a client like kube's own, on connections with `TCP_NODELAY`, as those of
//! Go's clients. Without it a request of two small writes waits for the acknowledgement of the first one, which the
//! other side delays by up to 40 ms. For who asks for thousands of things at a time, requests share connections of
//! HTTP/2 (`shared`).
//!
//! Must never know what is asked.

mod client;
mod dial;
mod shared;

pub use client::{Sender, builder, client, config, shared, to};
