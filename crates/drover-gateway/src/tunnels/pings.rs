//! Answers an agent's pings where they come in, below HTTP/2.
//!
//! Thousands of tunnels are silent but for a ping every ten seconds. What HTTP/2 keeps of each, buffers among it, lies
//! in memory that nothing has touched since the last one, and to touch it again is most of what an answer costs. Here
//! nothing is touched but what decrypts and encrypts. All else goes to HTTP/2, and so does a ping that comes in the
//! middle of something.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The head of a frame: RFC 9113, section 4.1.
const HEAD_BYTES: usize = 9;
/// A frame of PING with its head: section 6.7.
const PING_BYTES: usize = HEAD_BYTES + 8;
/// The head of a ping: its length, its type, no flag, no stream.
const PING: [u8; HEAD_BYTES] = [0, 0, 8, 6, 0, 0, 0, 0, 0];
/// Where the flags are, and the flag of an answer.
const FLAGS: usize = 4;
const ACK: u8 = 1;
/// What a client sends first: section 3.4.
const PREFACE_BYTES: u32 = 24;
/// Pings that are answered before others are looked after.
const MOST_AT_ONCE: usize = 16;

/// Where frames begin, of what goes one way.
#[derive(Debug, Default)]
struct Frames {
    /// Bytes of the frame that are still to come, its head aside.
    left: u32,
    head: [u8; HEAD_BYTES],
    /// Bytes of the head that have come.
    n_head: usize,
}

impl Frames {
    /// Whether the next byte is the first one of a frame.
    fn are_whole(&self) -> bool {
        self.left == 0 && self.n_head == 0
    }

    fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.left > 0 {
                let n_bytes = bytes.len().min(self.left as usize);
                self.left -= u32::try_from(n_bytes).unwrap_or(self.left);
                bytes = &bytes[n_bytes..];
                continue;
            }
            self.head[self.n_head] = bytes[0];
            bytes = &bytes[1..];
            self.n_head += 1;
            if self.n_head == HEAD_BYTES {
                self.left = u32::from_be_bytes([0, self.head[0], self.head[1], self.head[2]]);
                self.n_head = 0;
            }
        }
    }
}

/// What an agent's tunnel is read and written through.
#[derive(Debug)]
pub(super) struct Answering<S> {
    tunnel: S,
    come: Frames,
    gone: Frames,
    /// What is to be sent for a ping, and how much of it was.
    owed: Option<([u8; PING_BYTES], usize)>,
    /// What was read to see whether it is a ping, and is none: how much, and how much of that was handed on.
    kept: [u8; PING_BYTES],
    n_kept: usize,
    n_handed: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Answering<S> {
    /// HTTP/2 over it begins with a client's preface on this side.
    pub(super) fn new(tunnel: S) -> Self {
        let gone = Frames { left: PREFACE_BYTES, ..Frames::default() };
        let (come, kept) = (Frames::default(), [0; PING_BYTES]);
        Self { tunnel, come, gone, owed: None, kept, n_kept: 0, n_handed: 0 }
    }

    /// Sends the answer that waits, unless it would come in another frame's middle: then it waits for that one's end.
    fn poll_owed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some((answer, n_sent)) = &mut self.owed {
            if *n_sent == 0 && !self.gone.are_whole() {
                break;
            }
            match ready!(Pin::new(&mut self.tunnel).poll_write(cx, &answer[*n_sent..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n_bytes => *n_sent += n_bytes,
            }
            if *n_sent == PING_BYTES {
                self.owed = None;
                // Where it cannot be now, it is with what is written next, or when HTTP/2 is asked once more.
                if let Poll::Ready(flushed) = Pin::new(&mut self.tunnel).poll_flush(cx) {
                    flushed?;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Whether what was kept is a ping, which is answered then.
    fn is_answered(&mut self) -> bool {
        let is_ping = self.n_kept == PING_BYTES && self.kept.starts_with(&PING);
        if is_ping {
            let mut answer = self.kept;
            answer[FLAGS] = ACK;
            (self.owed, self.n_kept) = (Some((answer, 0)), 0);
        }
        is_ping
    }

    /// Hands on what was kept; false: nothing was.
    fn hand(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let kept = &self.kept[self.n_handed..self.n_kept];
        let n_bytes = kept.len().min(buffer.remaining());
        buffer.put_slice(&kept[..n_bytes]);
        self.n_handed += n_bytes;
        n_bytes > 0
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Answering<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.hand(buffer) {
            return Poll::Ready(Ok(()));
        }
        for _ in 0..MOST_AT_ONCE {
            if let Poll::Ready(sent) = this.poll_owed(cx) {
                sent?;
            }
            if this.owed.is_some() || !this.come.are_whole() {
                let n_before = buffer.filled().len();
                ready!(Pin::new(&mut this.tunnel).poll_read(cx, buffer))?;
                this.come.pass(&buffer.filled()[n_before..]);
                return Poll::Ready(Ok(()));
            }
            let mut kept = ReadBuf::new(&mut this.kept);
            ready!(Pin::new(&mut this.tunnel).poll_read(cx, &mut kept))?;
            (this.n_kept, this.n_handed) = (kept.filled().len(), 0);
            if !this.is_answered() {
                this.come.pass(&this.kept[..this.n_kept]);
                this.hand(buffer);
                return Poll::Ready(Ok(()));
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Answering<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_owed(cx))?;
        let n_bytes = ready!(Pin::new(&mut this.tunnel).poll_write(cx, bytes))?;
        this.gone.pass(&bytes[..n_bytes]);
        Poll::Ready(Ok(n_bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_owed(cx))?;
        let n_bytes = ready!(Pin::new(&mut this.tunnel).poll_write_vectored(cx, parts))?;
        let mut n_left = n_bytes;
        for part in parts {
            let n_of_part = part.len().min(n_left);
            this.gone.pass(&part[..n_of_part]);
            n_left -= n_of_part;
        }
        Poll::Ready(Ok(n_bytes))
    }

    fn is_write_vectored(&self) -> bool {
        self.tunnel.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_owed(cx))?;
        Pin::new(&mut this.tunnel).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tunnel).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    fn ping(flags: u8, payload: u64) -> Vec<u8> {
        let mut frame = PING.to_vec();
        frame[FLAGS] = flags;
        frame.extend_from_slice(&payload.to_be_bytes());
        frame
    }

    fn other(random: &mut fastrand::Rng) -> Vec<u8> {
        let n_bytes = if random.bool() { random.usize(..40) } else { random.usize(..5000) };
        let kind = random.choice([0, 1, 3, 4, 7, 8, 9]).expect("one");
        let mut frame =
            vec![0, u8::try_from(n_bytes >> 8).expect("small"), u8::try_from(n_bytes & 255).expect("small")];
        frame.extend([kind, random.u8(..), 0, 0, 0, random.u8(..)]);
        // What looks like a ping in the middle of something is none.
        while frame.len() < HEAD_BYTES + n_bytes {
            frame.extend_from_slice(&PING[..PING.len().min(HEAD_BYTES + n_bytes - frame.len())]);
        }
        frame
    }

    /// Cuts bytes into frames; what is left is no whole one.
    fn frames(mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let n_bytes = HEAD_BYTES + usize::from(bytes[1]) * 256 + usize::from(bytes[2]);
            all.push(bytes[..n_bytes].to_vec());
            bytes = &bytes[n_bytes..];
        }
        all
    }

    async fn written_in_parts(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8], random: &mut fastrand::Rng) {
        let mut left = bytes;
        while !left.is_empty() {
            let most = if random.bool() { 20 } else { 4000 };
            let n_bytes = random.usize(1..=left.len().min(most));
            to.write_all(&left[..n_bytes]).await.expect("written");
            to.flush().await.expect("flushed");
            left = &left[n_bytes..];
            tokio::task::yield_now().await;
        }
    }

    fn pair() -> (DuplexStream, Answering<DuplexStream>) {
        let (agent, tunnel) = duplex(512);
        (agent, Answering::new(tunnel))
    }

    #[tokio::test]
    async fn a_ping_is_answered_and_wakes_nothing() {
        let (mut agent, mut tunnel) = pair();
        tunnel.write_all(&[b'x'; PREFACE_BYTES as usize]).await.expect("written");
        agent.read_exact(&mut [0; PREFACE_BYTES as usize]).await.expect("the preface");
        let mut buffer = [0; 64];
        for payload in 0..40 {
            agent.write_all(&ping(0, payload)).await.expect("written");
            let mut answer = [0; PING_BYTES];
            tokio::select! {
                biased;
                read = tunnel.read(&mut buffer) => panic!("handed on: {read:?}"),
                read = agent.read_exact(&mut answer) => drop(read.expect("an answer")),
            }
            assert_eq!(answer.to_vec(), ping(ACK, payload));
        }
        // Answers to this side's own are not its to answer.
        agent.write_all(&ping(ACK, 7)).await.expect("written");
        assert_eq!(tunnel.read(&mut buffer).await.expect("read"), PING_BYTES);
        drop(agent);
        assert_eq!(tunnel.read(&mut buffer).await.expect("the end"), 0);
    }

    /// Every ping has one answer, whoever gave it, and all else comes and goes as it was.
    #[tokio::test]
    async fn frames_are_neither_torn_nor_lost_however_they_are_cut() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let come: Vec<Vec<u8>> = (0..60)
                .map(|n| if random.u8(..3) > 0 { ping(random.u8(..2), n) } else { other(&mut random) })
                .collect();
            let gone: Vec<Vec<u8>> = (0..30).map(|_| other(&mut random)).collect();
            let (agent, tunnel) = pair();
            let (mut from_agent, mut to_agent) = tokio::io::split(agent);
            let (mut from_tunnel, mut to_tunnel) = tokio::io::split(tunnel);
            let (mut one, mut two) = (random.fork(), random.fork());
            let sends = async {
                written_in_parts(&mut to_agent, &come.concat(), &mut one).await;
                to_agent.shutdown().await.expect("shut down");
            };
            // As HTTP/2 does, it answers what it is handed.
            let handed = async {
                written_in_parts(&mut to_tunnel, &[b'x'; PREFACE_BYTES as usize], &mut two).await;
                let (mut handed, mut part, own) = (Vec::new(), [0; 300], gone.concat());
                let reads = async {
                    loop {
                        match from_tunnel.read(&mut part).await.expect("read") {
                            0 => return,
                            n_bytes => handed.extend_from_slice(&part[..n_bytes]),
                        }
                    }
                };
                tokio::join!(reads, written_in_parts(&mut to_tunnel, &own, &mut two));
                let handed = frames(&handed);
                for frame in handed.iter().filter(|frame| frame.starts_with(&PING)) {
                    let mut answer = frame.clone();
                    answer[FLAGS] = ACK;
                    to_tunnel.write_all(&answer).await.expect("written");
                }
                to_tunnel.shutdown().await.expect("shut down");
                handed
            };
            let mut seen = Vec::new();
            let (handed, (), read) = tokio::join!(handed, sends, from_agent.read_to_end(&mut seen));
            read.expect("read");
            let (answers, rest): (Vec<_>, Vec<_>) =
                frames(&seen[PREFACE_BYTES as usize..]).into_iter().partition(|frame| frame[3] == PING[3]);
            assert_eq!(rest, gone, "seed {seed}");
            let is_ping = |frame: &&Vec<u8>| frame.starts_with(&PING);
            let sorted = |mut frames: Vec<Vec<u8>>| {
                frames.sort();
                frames
            };
            let asked = come.iter().filter(is_ping).map(|frame| ping(ACK, u64::from(frame[PING_BYTES - 1])));
            assert_eq!(sorted(answers), sorted(asked.collect()), "seed {seed}");
            let others =
                |frames: &[Vec<u8>]| frames.iter().filter(|frame| !is_ping(frame)).cloned().collect::<Vec<_>>();
            assert_eq!(others(&handed), others(&come), "seed {seed}");
        }
    }
}
