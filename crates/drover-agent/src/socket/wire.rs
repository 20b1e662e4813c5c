//! A client's connection, whatever it is made of: a unix socket, or a stream of a tunnel.

use tokio::io::{AsyncRead, AsyncWrite};

/// What a client sends.
pub(crate) type Incoming = Box<dyn AsyncRead + Send + Unpin>;
/// What a client receives.
pub(crate) type Outgoing = Box<dyn AsyncWrite + Send + Unpin>;
