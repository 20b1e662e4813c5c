//! How long nothing has come through a tunnel. The agent pings it; this side only listens, and asks where it hears
//! nothing: an agent pings no tunnel through which it is sent something.
//!
//! One looks after all tunnels and tells each that it is silent, when it can be at the earliest, to the second: a
//! tunnel with timers of its own would wake at each, though it has been heard meanwhile, and to be woken is most of
//! what a ping costs.

use std::collections::BTreeMap;
use std::future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use drover_socket::tunnel::{PING_EVERY, PING_TIMEOUT};
use tokio::io::AsyncRead;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::io::InspectReader;
use tokio_util::sync::CancellationToken;

/// How much later than a ping an agent is asked for a sign of life.
const GRACE: Duration = Duration::from_secs(2);
/// After how long the agent is asked, and after how long it cannot be there any more.
const LONG: Duration = PING_EVERY.saturating_add(GRACE);
const DEATH: Duration = PING_EVERY.saturating_add(PING_TIMEOUT);

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

    /// Ends when a ping is overdue. May be dropped and called again.
    pub(super) async fn is_long(&self) {
        while self.0.lasts() < LONG {
            self.0.is_long.notified().await;
        }
    }

    /// Whether the agent cannot be there any more.
    pub(super) fn is_death(&self) -> bool {
        self.0.lasts() >= DEATH
    }
}

impl Heard {
    fn last(&self) -> Instant {
        self.begun + Duration::from_millis(self.last.load(Ordering::Relaxed))
    }

    fn lasts(&self) -> Duration {
        self.last().elapsed()
    }
}

/// How silent a tunnel is, as long as there is one, and what ends it.
type WatchedTunnel = (Weak<Heard>, CancellationToken);

/// Has tunnels looked after; clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Watch(mpsc::UnboundedSender<WatchedTunnel>);

impl Watch {
    /// Looks after it until it has ended.
    pub(super) fn over(&self, silence: &Silence, end: CancellationToken) {
        if self.0.send((Arc::downgrade(&silence.0), end)).is_err() {
            tracing::debug!("nothing looks after tunnels any more");
        }
    }
}

/// Ends tunnels whose agents have gone silent, and has the others ask theirs in time.
#[derive(Debug)]
pub(crate) struct Watchman {
    entered: mpsc::UnboundedReceiver<WatchedTunnel>,
    begun: Instant,
    /// Those to look at again, by the second after the beginning in which that is.
    due: BTreeMap<u64, Vec<WatchedTunnel>>,
}

/// One who looks after tunnels, and what has it look after one.
pub(super) fn watch() -> (Watch, Watchman) {
    let (enter, entered) = mpsc::unbounded_channel();
    (Watch(enter), Watchman { entered, begun: Instant::now(), due: BTreeMap::new() })
}

impl Watchman {
    /// Looks after them until the last [`Watch`] is gone, or this is dropped.
    pub(crate) async fn run(mut self) {
        loop {
            let next = self.due.first_key_value().map(|(&second, _)| self.begun + Duration::from_secs(second));
            let is_due = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = is_due => for watched in self.due.pop_first().into_iter().flat_map(|(_, due)| due) {
                    self.look(watched);
                },
                entered = self.entered.recv() => match entered {
                    Some(watched) => self.look(watched),
                    None => return,
                }
            }
        }
    }

    fn look(&mut self, watched: WatchedTunnel) {
        let Some(heard) = watched.0.upgrade() else { return };
        let lasts = heard.lasts();
        let next = if lasts >= DEATH {
            return watched.1.cancel();
        } else if lasts >= LONG {
            heard.is_long.notify_one();
            DEATH
        } else {
            LONG
        };
        let at = (heard.last() + next).saturating_duration_since(self.begun);
        let second = at.as_secs() + u64::from(at.subsec_nanos() > 0);
        self.due.entry(second).or_default().push(watched);
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
        let (watch, watchman) = watch();
        let end = CancellationToken::new();
        watch.over(&silence, end.clone());
        let ended = async {
            end.cancelled().await;
            begun.elapsed().as_secs()
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
        let all = async { tokio::join!(ended, heard) };
        let dead = tokio::select! {
            () = watchman.run() => unreachable!("there is a watch"),
            (dead, ()) = all => dead,
        };
        assert!(silence.is_death());
        assert_eq!(dead, 33);
    }
}
