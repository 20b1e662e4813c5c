//! The client's side of the agent's socket, for the command line and the gateway.

use std::io;
use std::path::Path;

use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::protocol::{self, Answer, Frame, FrameKind, Input, Request};

/// What comes back.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// A message.
    Answer(Answer),
    /// Bytes of a file or of standard output.
    Data(Vec<u8>),
    /// Bytes of standard error.
    ErrorData(Vec<u8>),
}

/// One request under way.
#[derive(Debug)]
pub struct Exchange {
    /// What the server sends.
    pub replies: Replies,
    /// What a running command is told.
    pub inputs: Inputs,
}

/// The receiving side of a request.
#[derive(Debug)]
pub struct Replies(OwnedReadHalf);

/// The sending side of a request.
#[derive(Debug)]
pub struct Inputs(OwnedWriteHalf);

/// Sends a request to the agent whose socket this is.
///
/// # Errors
/// When the agent cannot be reached.
pub async fn ask(socket: &Path, request: &Request) -> io::Result<Exchange> {
    let (from, to) = UnixStream::connect(socket).await?.into_split();
    let mut inputs = Inputs(to);
    protocol::write_frame(&mut inputs.0, &protocol::message(request)?).await?;
    Ok(Exchange { replies: Replies(from), inputs })
}

impl Replies {
    /// The next reply; `None` when the agent has gone.
    ///
    /// # Errors
    /// When the connection breaks or what comes is no reply.
    pub async fn next(&mut self) -> io::Result<Option<Reply>> {
        let Some(Frame { kind, payload }) = protocol::read_frame(&mut self.0).await? else { return Ok(None) };
        Ok(Some(match kind {
            FrameKind::Message => Reply::Answer(serde_json::from_slice(&payload).map_err(io::Error::other)?),
            FrameKind::Data => Reply::Data(payload),
            FrameKind::ErrorData => Reply::ErrorData(payload),
        }))
    }
}

impl Inputs {
    /// Sends bytes to the command's standard input.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        for part in bytes.chunks(protocol::MAX_DATA_BYTES) {
            let frame = Frame { kind: FrameKind::Data, payload: part.to_vec() };
            protocol::write_frame(&mut self.0, &frame).await?;
        }
        Ok(())
    }

    /// Tells the command something else.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn tell(&mut self, input: Input) -> io::Result<()> {
        protocol::write_frame(&mut self.0, &protocol::message(&input)?).await
    }
}
