//! What the agent asks of the forwarder: lines of JSON, each answered by one.

use std::io;
use std::net::SocketAddrV4;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The longest line: some ten thousand ports.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// A port of the node and where it leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Forward {
    /// An address of the node, and its port.
    pub from: SocketAddrV4,
    /// The allocation's address, and its port.
    pub to: SocketAddrV4,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ForwardOrder {
    /// These and no others. Connections of others are carried to their end.
    Exactly(Vec<Forward>),
    /// These too. One that is there with another target leads to the new one from now on.
    Open(Vec<Forward>),
    /// These no more, nor their connections. One that leads elsewhere by now stays.
    Close(Vec<Forward>),
}

/// What became of an order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardAnswer {
    /// Ports that cannot be listened on. All others are as ordered.
    pub refused: Vec<RefusedForward>,
}

/// A port that cannot be listened on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedForward {
    /// The port.
    pub from: SocketAddrV4,
    /// Why not.
    pub reason: String,
}

/// Reads one line; none: the other side has gone.
pub(crate) async fn read_line<T, R>(from: &mut R) -> io::Result<Option<T>>
where
    T: for<'de> Deserialize<'de>,
    R: AsyncBufRead + Unpin,
{
    let mut line = String::new();
    if from.take(MAX_LINE_BYTES).read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    serde_json::from_str(&line).map(Some).map_err(io::Error::other)
}

/// Writes one line.
pub(crate) async fn write_line<T, W>(to: &mut W, value: &T) -> io::Result<()>
where
    T: Serialize,
    W: AsyncWrite + Unpin,
{
    let mut line = serde_json::to_vec(value).map_err(io::Error::other)?;
    line.push(b'\n');
    to.write_all(&line).await
}
