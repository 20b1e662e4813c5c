//! The client's side of the agent's socket, for the command line and the gateway.

use std::fmt;
use std::io;
use std::path::Path;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

use crate::flood::Pace;
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

impl Reply {
    /// It as a frame, to be handed on.
    ///
    /// # Errors
    /// When it cannot be rendered.
    pub fn frame(&self) -> io::Result<Frame> {
        Ok(match self {
            Self::Answer(answer) => protocol::message(answer)?,
            Self::Data(bytes) => Frame { kind: FrameKind::Data, payload: bytes.clone() },
            Self::ErrorData(bytes) => Frame { kind: FrameKind::ErrorData, payload: bytes.clone() },
        })
    }
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
pub struct Replies {
    from: Box<dyn AsyncRead + Send + Unpin>,
    doubts: Option<Doubts>,
}

/// What one holds against a server that it does not trust.
#[derive(Debug)]
struct Doubts {
    request: Request,
    pace: Pace,
}

impl fmt::Debug for Replies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Replies")
    }
}

/// The sending side of a request.
pub struct Inputs(Box<dyn AsyncWrite + Send + Unpin>);

impl fmt::Debug for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inputs")
    }
}

/// Sends a request to the agent whose socket this is.
///
/// # Errors
/// When the agent cannot be reached.
pub async fn ask(socket: &Path, request: &Request) -> io::Result<Exchange> {
    let (from, to) = UnixStream::connect(socket).await?.into_split();
    let mut exchange = Exchange::over(from, to);
    exchange.inputs.request(request).await?;
    Ok(exchange)
}

impl Exchange {
    /// An exchange over a connection, whatever it is made of. The request is still to be sent
    /// ([`Inputs::request`]), unless the connection carries it in another way.
    pub fn over(from: impl AsyncRead + Send + Unpin + 'static, to: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        Self { replies: Replies { from: Box::new(from), doubts: None }, inputs: Inputs(Box::new(to)) }
    }
}

impl Replies {
    /// The same, of a server that is not trusted: what does not answer this request is an error, so are floods of
    /// frames that carry nothing, and of others no more than 20,000 are read in a second.
    #[must_use]
    pub fn doubted(self, request: &Request) -> Self {
        Self { doubts: Some(Doubts { request: request.clone(), pace: Pace::default() }), ..self }
    }

    /// The next reply; `None` when the agent has gone.
    ///
    /// # Errors
    /// When the connection breaks or what comes is no reply, to a request that is known: to another one.
    pub async fn next(&mut self) -> io::Result<Option<Reply>> {
        let Some(Frame { kind, payload }) = protocol::read_frame(&mut self.from).await? else { return Ok(None) };
        let carries_nothing = payload.is_empty();
        let reply = match kind {
            FrameKind::Message => Reply::Answer(serde_json::from_slice(&payload).map_err(io::Error::other)?),
            FrameKind::Data => Reply::Data(payload),
            FrameKind::ErrorData => Reply::ErrorData(payload),
        };
        if let Some(Doubts { request, pace }) = &mut self.doubts {
            let is_answer = match &reply {
                Reply::Answer(answer) => request.takes(answer),
                Reply::Data(_) => request.takes_data(),
                Reply::ErrorData(_) => matches!(request, Request::Exec { .. }),
            };
            if !is_answer {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the agent answers what it was not asked"));
            }
            pace.frame(carries_nothing).await?;
        }
        Ok(Some(reply))
    }
}

impl Inputs {
    /// Sends the request, which is the first that the agent reads.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn request(&mut self, request: &Request) -> io::Result<()> {
        protocol::write_frame(&mut self.0, &protocol::message(request)?).await
    }

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
