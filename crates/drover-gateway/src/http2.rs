//! The streams of a connection of HTTP/2: a client that takes nothing of one has that one cut and no other, and a
//! connection that asks for nothing ends.
//!
//! HTTP/1.1 has neither: there a client that takes nothing stops its connection, whose writes have a limit.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// How long a connection may be without a request. Go's clients, the API server is one, end theirs after 90 s: no
/// request of theirs is on its way when this side ends it.
const REST: Duration = Duration::from_secs(100);

/// Bytes of which a client is known to take all or nothing.
const PART: usize = 16 * 1024;

tokio::task_local! {
    static UNTAKEN: Untaken;
}

/// Since when a part of an answer waits for the client; none: the client waits for a part.
#[derive(Clone, Debug, Default)]
struct Untaken(Arc<Mutex<Option<Instant>>>);

impl Untaken {
    fn set(&self, since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// Ends when a part has waited for so long.
    async fn for_longer_than(&self, limit: Duration) {
        loop {
            let since = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let at = since.unwrap_or_else(Instant::now) + limit;
            if since.is_some() && at <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(at).await;
        }
    }
}

/// Runs the streams of one connection; clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    tasks: TaskTracker,
    /// How many have begun, and ended.
    n_turns: Arc<AtomicU64>,
    unsent_timeout: Duration,
}

impl Streams {
    /// None yet. Each is cut when its client takes nothing of its answer for so long.
    pub(crate) fn new(unsent_timeout: Duration) -> Self {
        Self { tasks: TaskTracker::new(), n_turns: Arc::default(), unsent_timeout }
    }

    /// Ends when nothing was under way for a while; `first` is how long the first request may take to come.
    pub(crate) async fn rest(&self, first: Duration) {
        loop {
            let before = self.n_turns.load(Ordering::Relaxed);
            tokio::time::sleep(if before == 0 { first } else { REST }).await;
            if self.tasks.is_empty() && before == self.n_turns.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, stream: F) {
        self.n_turns.fetch_add(1, Ordering::Relaxed);
        let (untaken, limit, turns) = (Untaken::default(), self.unsent_timeout, Arc::clone(&self.n_turns));
        drop(self.tasks.spawn(UNTAKEN.scope(untaken.clone(), async move {
            tokio::select! {
                biased;
                _ = stream => {}
                // The stream is reset with its end.
                () = untaken.for_longer_than(limit) => tracing::debug!("an answer is cut: its client takes nothing"),
            }
            turns.fetch_add(1, Ordering::Relaxed);
        })));
    }
}

/// An answer's body, of which a stream of HTTP/2 knows whether its client takes it.
pub(crate) fn until_taken<B>(body: B) -> Taken<B> {
    let untaken = UNTAKEN.try_with(Untaken::clone).ok();
    if let Some(untaken) = &untaken {
        untaken.set(Some(Instant::now()));
    }
    Taken { body, untaken, rest: Bytes::new() }
}

/// The result of [`until_taken`].
#[derive(Debug)]
pub(crate) struct Taken<B> {
    body: B,
    /// None: the connection speaks HTTP/1.1.
    untaken: Option<Untaken>,
    /// What comes before the body's next frame.
    rest: Bytes,
}

impl<B: Body<Data = Bytes> + Unpin> Body for Taken<B> {
    type Data = Bytes;
    type Error = B::Error;

    /// It is asked for a part when the one before was taken, so that a large one goes out in several.
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(untaken) = self.untaken.clone() else { return Pin::new(&mut self.body).poll_frame(cx) };
        if self.rest.is_empty() {
            untaken.set(None);
            match ready!(Pin::new(&mut self.body).poll_frame(cx)).map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.rest = data,
                Some(Ok(Err(other))) => return Poll::Ready(Some(Ok(other))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        untaken.set(Some(Instant::now()));
        let n_bytes = self.rest.len().min(PART);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(n_bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (of_body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(of_body.lower().saturating_add(rest));
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}
