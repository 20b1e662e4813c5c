//! How long nothing has come through a tunnel. The agent pings it; this side only listens, and asks where it hears
//! nothing: an agent pings no tunnel through which it is sent something.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use drover_socket::tunnel::{PING_EVERY, PING_TIMEOUT};
use tokio::io::AsyncRead;
use tokio::time::Instant;
use tokio_util::io::InspectReader;

/// How much later than a ping an agent is asked for a sign of life.
const GRACE: Duration = Duration::from_secs(2);

/// When something came last; clones share it.
#[derive(Clone, Debug)]
pub(super) struct Silence {
    begun: Instant,
    /// Milliseconds after that.
    heard: Arc<AtomicU64>,
}

impl Silence {
    /// It begins now, and again with all that is read. The result reads and writes as `tunnel` does.
    pub(super) fn of<S: AsyncRead>(tunnel: S) -> (Self, InspectReader<S, impl FnMut(&[u8])>) {
        let silence = Self { begun: Instant::now(), heard: Arc::default() };
        let heard = silence.clone();
        (silence, InspectReader::new(tunnel, move |_| heard.breaks()))
    }

    fn breaks(&self) {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard.store(now, Ordering::Relaxed);
    }

    /// Ends when a ping is overdue. May be dropped and called again.
    pub(super) async fn is_long(&self) {
        self.lasts(PING_EVERY + GRACE).await;
    }

    /// Ends when the agent cannot be there any more. Likewise.
    pub(super) async fn is_death(&self) {
        self.lasts(PING_EVERY + PING_TIMEOUT).await;
    }

    async fn lasts(&self, time: Duration) {
        loop {
            let at = self.begun + Duration::from_millis(self.heard.load(Ordering::Relaxed)) + time;
            if at <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(at).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_comes_breaks_it_and_what_goes_does_not() {
        let (theirs, mut ours) = tokio::io::duplex(64);
        let (silence, tunnel) = Silence::of(theirs);
        let mut tunnel = pin!(tunnel);
        let begun = Instant::now();
        let mut byte = [0];
        tokio::time::advance(Duration::from_secs(8)).await;
        ours.write_all(b"x").await.expect("written");
        tunnel.read_exact(&mut byte).await.expect("read");
        silence.is_long().await;
        assert_eq!(begun.elapsed().as_secs(), 20);
        tunnel.write_all(b"x").await.expect("written");
        silence.is_long().await;
        assert_eq!(begun.elapsed().as_secs(), 20, "it still is");
        silence.is_death().await;
        assert_eq!(begun.elapsed().as_secs(), 33);
    }
}
