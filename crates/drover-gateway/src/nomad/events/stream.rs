//! The stream of a subscriber: lines of JSON, until it goes, its rights end, or it has fallen behind.
//!
//! What there is goes out in one piece, and no other before that one was taken. While it is not, nothing is kept for
//! the subscriber but its position in the buffer; the connection is closed when it takes nothing for 40 s, as every one
//! is.

use std::io;
use std::time::Duration;

use drover_nomad::{Buffer, Commit, EventPieces, Next, Picked, Query, Wanted};
use futures::stream::unfold;
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame};
use tokio::sync::watch;
use tokio::time::Interval;
use tokio_util::sync::CancellationToken;

use super::sight::Sight;
use crate::answers::{Answer, Refusal, with_type};
use crate::callers::{Caller, every};
use crate::limits::{Open, Opening};
use crate::nomad::audit::NomadCall;
use crate::nomad::service::{Nomad, known, refused};

/// How often a line says that the stream is there.
const BEAT_EVERY: Duration = Duration::from_secs(30);
/// That line.
const BEAT: Bytes = Bytes::from_static(b"{}\n");

/// Bytes from which a piece is large enough.
const PIECE: usize = 64 * 1024;

/// The refusal of a stream where it is turned off.
const NO_EVENTS: &str =
    "the event stream is turned off here: set events.enabled in the gateway's configuration, or `kubectl get --watch`";

impl Nomad {
    /// Answers a caller who asks for the event stream, with these parameters.
    pub(in crate::nomad) async fn stream(&self, caller: Caller, mut call: NomadCall, query: &str) -> Response<Answer> {
        match self.subscribe(&mut call, &caller, query).await {
            Ok((view, open)) => {
                call.answered(200, 0);
                let subscriber = Subscriber::new((caller, call, open), view, self.parts.ends.clone());
                let lines = unfold(subscriber, Subscriber::next);
                with_type(StatusCode::OK, "application/json", StreamBody::new(lines).boxed_unsync())
            }
            Err(refusal) => {
                call.answered(refusal.code, refusal.message.len());
                refused(&refusal)
            }
        }
    }

    async fn subscribe(&self, call: &mut NomadCall, caller: &Caller, text: &str) -> Result<(View, Open), Refusal> {
        let query = Query::parse(text)?;
        call.is_about(query.text("namespace").unwrap_or("default"));
        let feed = self.parts.caches.feed().ok_or_else(|| Refusal::new(400, NO_EVENTS))?;
        let wanted = Wanted::parse(text, &query)?;
        known(&caller.identity)?;
        let open = caller.limits.open(Opening::Events, &caller.identity.user)?;
        drop(self.parts.caches.complete().await?);
        let sight = Sight::open(&self.parts.reviews, &caller.identity, wanted.needed()).await?;
        let (buffer, pieces) = (feed.subscribe(), feed.pieces());
        let position = buffer.borrow().position(wanted.index());
        Ok((View { buffer, pieces, position, wanted, sight }, open))
    }
}

/// What a subscriber sees of the buffer.
struct View {
    buffer: watch::Receiver<Buffer>,
    pieces: EventPieces,
    position: u64,
    wanted: Wanted,
    sight: Sight,
}

impl View {
    /// Waits until there is something; false: nothing comes any more. May be dropped and called again.
    async fn has_news(&mut self) -> bool {
        let position = self.position;
        self.buffer.wait_for(|buffer| buffer.at(position) != Next::Later).await.is_ok()
    }

    /// The lines of what there is, or of the first part of it; empty: nothing in it is for this subscriber.
    async fn lines(&mut self) -> Result<Bytes, Refusal> {
        let mut picked = Picked::from(self.position);
        while picked.n_bytes() < PIECE {
            let next = self.buffer.borrow_and_update().at(self.position);
            match next {
                Next::Commit(commit) => {
                    self.position += 1;
                    let shown = self.shown(&commit).await?;
                    picked.add(commit, shown);
                }
                Next::Gone if picked.n_bytes() == 0 => {
                    return Err(Refusal::new(410, "events were dropped before they were taken: subscribe again"));
                }
                // The lines before the gap are told first.
                Next::Gone | Next::Later => break,
            }
        }
        Ok(self.pieces.piece(picked))
    }

    /// The places of the events of a commit that are for this subscriber.
    async fn shown(&mut self, commit: &Commit) -> Result<Vec<usize>, Refusal> {
        let mut shown = Vec::new();
        for (place, event) in commit.events().iter().enumerate().filter(|(_, event)| self.wanted.has(event)) {
            if self.sight.has(event.topic().resource(), event.namespace()).await? {
                shown.push(place);
            }
        }
        Ok(shown)
    }
}

/// A stream that is open.
struct Subscriber {
    caller: Caller,
    call: NomadCall,
    view: View,
    /// None: nothing was sent yet.
    beats: Option<Interval>,
    checks: Interval,
    ends: CancellationToken,
    is_over: bool,
    /// Its place is free when it ends.
    _open: Open,
}

/// What comes next.
enum Turned {
    End,
    Check,
    Beat,
    News,
}

impl Subscriber {
    fn new((caller, call, open): (Caller, NomadCall, Open), view: View, ends: CancellationToken) -> Self {
        let checks = every(caller.recheck_every);
        Self { caller, call, view, beats: None, checks, ends, is_over: false, _open: open }
    }

    async fn next(mut self) -> Option<(io::Result<Frame<Bytes>>, Self)> {
        if self.is_over {
            return None;
        }
        match self.lines().await {
            Ok(Some(lines)) => {
                self.call.carried(lines.len());
                Some((Ok(Frame::data(lines)), self))
            }
            Ok(None) => None,
            Err(refusal) => {
                self.is_over = true;
                self.call.answered_at_last(refusal.code);
                tracing::debug!(user = self.caller.identity.user, reason = refusal.message, "an event stream ends");
                // There is no place for a reason: the answer breaks off, so that it is not taken for whole.
                Some((Err(io::Error::other(refusal.message)), self))
            }
        }
    }

    /// The next lines; none: this replica ends.
    async fn lines(&mut self) -> Result<Option<Bytes>, Refusal> {
        let Some(beats) = &mut self.beats else {
            self.beats = Some(every(BEAT_EVERY));
            return Ok(Some(BEAT));
        };
        loop {
            let turned = tokio::select! {
                biased;
                () = self.ends.cancelled() => Turned::End,
                _ = self.checks.tick() => Turned::Check,
                _ = beats.tick() => Turned::Beat,
                there_are = self.view.has_news() => if there_are { Turned::News } else { Turned::End },
            };
            match turned {
                Turned::End => return Ok(None),
                Turned::Beat => return Ok(Some(BEAT)),
                Turned::Check => {
                    (self.caller.is_still)().await.or_else(held_back)?;
                    self.view.sight.again().await.or_else(held_back)?;
                }
                Turned::News => {
                    let lines = self.view.lines().await?;
                    if !lines.is_empty() {
                        return Ok(Some(lines));
                    }
                }
            }
        }
    }
}

/// Too many others are asked for: this one is asked for again the next time.
fn held_back(refusal: Refusal) -> Result<(), Refusal> {
    if refusal.code == 429 { Ok(()) } else { Err(refusal) }
}

#[cfg(test)]
mod tests;
