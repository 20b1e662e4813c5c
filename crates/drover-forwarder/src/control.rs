//! The agent's side of the forwarder's socket.

use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::orders::{ForwardAnswer, ForwardOrder, read_line, write_line};

/// How long an order may take: it waits for nothing but the one before it.
const ORDER_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to a forwarder.
#[derive(Debug)]
pub struct Control {
    from: BufReader<OwnedReadHalf>,
    to: OwnedWriteHalf,
}

impl Control {
    /// Connects to the forwarder that listens on this socket.
    ///
    /// # Errors
    /// When none does.
    pub async fn connect(socket: &Path) -> io::Result<Self> {
        let (from, to) = UnixStream::connect(socket).await?.into_split();
        Ok(Self { from: BufReader::new(from), to })
    }

    /// Gives an order and waits until it is carried out.
    ///
    /// # Errors
    /// When the forwarder has gone, or does not answer in time. The connection is of no more use then.
    pub async fn order(&mut self, order: &ForwardOrder) -> io::Result<ForwardAnswer> {
        let exchange = async {
            write_line(&mut self.to, order).await?;
            read_line(&mut self.from).await?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
        };
        tokio::time::timeout(ORDER_TIMEOUT, exchange).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }
}
