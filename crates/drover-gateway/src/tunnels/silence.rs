//! How long nothing has come through a tunnel. The agent pings it; this side only listens, and asks where it hears
//! nothing: an agent pings no tunnel through which it is sent something.
//!
//! One who looks at all tunnels in turn tells each that it is silent: as many timers as there are tunnels would each
//! wake twice in the time of a ping.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use drover_socket::tunnel::{PING_EVERY, PING_TIMEOUT};
use tokio::io::AsyncRead;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::io::InspectReader;

/// How much later than a ping an agent is asked for a sign of life.
const GRACE: Duration = Duration::from_secs(2);
/// How often tunnels are looked at.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// When something came last; clones share it.
#[derive(Clone, Debug)]
pub(super) struct Silence(Arc<Heard>);

#[derive(Debug)]
struct Heard {
    begun: Instant,
    /// Milliseconds after that.
    last: AtomicU64,
    is_long: Notify,
}

impl Silence {
    /// It begins now, and again with all that is read. The result reads and writes as `tunnel` does.
    pub(super) fn of<S: AsyncRead>(tunnel: S) -> (Self, InspectReader<S, impl FnMut(&[u8])>) {
        let silence = Self(Arc::new(Heard { begun: Instant::now(), last: AtomicU64::new(0), is_long: Notify::new() }));
        let heard = silence.clone();
        (silence, InspectReader::new(tunnel, move |_| heard.breaks()))
    }

    fn breaks(&self) {
        let now = u64::try_from(self.0.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.last.store(now, Ordering::Relaxed);
    }

    /// Tells who waits for it whether it is long; to be called every [`LOOK_EVERY`].
    pub(super) fn look(&self) {
        if self.lasts(PING_EVERY + GRACE) {
            self.0.is_long.notify_one();
        }
    }

    /// Ends when a ping is overdue. May be dropped and called again.
    pub(super) async fn is_long(&self) {
        while !self.lasts(PING_EVERY + GRACE) {
            self.0.is_long.notified().await;
        }
    }

    /// Whether the agent cannot be there any more.
    pub(super) fn is_death(&self) -> bool {
        self.lasts(PING_EVERY + PING_TIMEOUT)
    }

    fn lasts(&self, time: Duration) -> bool {
        let last = Duration::from_millis(self.0.last.load(Ordering::Relaxed));
        self.0.begun.elapsed().saturating_sub(last) >= time
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
        let looked_at = async {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                silence.look();
                if silence.is_death() {
                    return begun.elapsed().as_secs();
                }
            }
        };
        let heard = async {
            let mut byte = [0];
            tokio::time::sleep(Duration::from_secs(8)).await;
            ours.write_all(b"x").await.expect("written");
            tunnel.read_exact(&mut byte).await.expect("read");
            silence.is_long().await;
            assert_eq!(begun.elapsed().as_secs(), 20);
            tunnel.write_all(b"x").await.expect("written");
            silence.is_long().await;
            assert_eq!(begun.elapsed().as_secs(), 20, "it still is");
        };
        let (dead, ()) = tokio::join!(looked_at, heard);
        assert_eq!(dead, 33);
    }
}
