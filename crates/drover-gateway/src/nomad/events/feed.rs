//! From the watches into the one buffer.

use std::time::Duration;

use drover_nomad::{Buffer, EventPieces, Happened, Held, World, events};
use tokio::sync::watch;
use tokio::time::Instant;

/// The newest commits, for all subscribers; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Feed {
    buffer: watch::Sender<Buffer>,
    pieces: EventPieces,
}

impl Feed {
    /// Keeps so many commits.
    pub(crate) fn new(most: usize) -> Self {
        Self { buffer: watch::Sender::new(Buffer::new(most)), pieces: EventPieces::default() }
    }

    /// What there is, and a sign when there is more.
    pub(in crate::nomad) fn subscribe(&self) -> watch::Receiver<Buffer> {
        self.buffer.subscribe()
    }

    /// The lines that its subscribers have in common.
    pub(in crate::nomad) fn pieces(&self) -> EventPieces {
        self.pieces.clone()
    }
}

/// Where changes go; there is one for a feed.
#[derive(Debug)]
pub(in crate::nomad) struct Intake {
    /// None: the stream is turned off.
    feed: Option<Feed>,
    held: Held,
    since: Instant,
}

impl Intake {
    /// Into this feed.
    pub(in crate::nomad) fn new(feed: Option<Feed>) -> Self {
        Self { feed, held: Held::default(), since: Instant::now() }
    }

    /// Whether changes are wanted.
    pub(in crate::nomad) const fn is_on(&self) -> bool {
        self.feed.is_some()
    }

    /// Takes changes in; `world` is that of after them.
    pub(in crate::nomad) fn take(&mut self, changes: &[Happened], world: &World) {
        let now = self.since.elapsed();
        for change in changes {
            self.held.put(change.version(), events(change, world), now);
        }
        let ripe = self.held.ripe(now);
        self.push(ripe);
    }

    /// Waits until something has waited long enough, and lets it go on. May be dropped and called again.
    pub(in crate::nomad) async fn ripens(&mut self) {
        match self.held.next_at() {
            Some(at) => tokio::time::sleep_until(self.since + at).await,
            None => std::future::pending().await,
        }
        // Timers count in milliseconds.
        let ripe = self.held.ripe(self.since.elapsed() + Duration::from_millis(1));
        self.push(ripe);
    }

    /// The cluster's state is an older one: all who follow it begin again.
    pub(in crate::nomad) fn begins_again(&mut self) {
        drop(self.held.all());
        if let Some(feed) = &self.feed {
            feed.buffer.send_modify(Buffer::reset);
        }
    }

    /// No more changes come.
    pub(in crate::nomad) fn ends(&mut self) {
        let all = self.held.all();
        self.push(all);
    }

    fn push(&self, commits: Vec<(u64, Vec<drover_nomad::Event>)>) {
        let Some(feed) = self.feed.as_ref().filter(|_| !commits.is_empty()) else { return };
        feed.buffer.send_modify(|buffer| {
            for (version, events) in commits {
                buffer.push(version, events);
            }
        });
    }
}
