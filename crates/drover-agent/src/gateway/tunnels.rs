//! Keeps one tunnel to each replica, to four at most: a replica without one is handed what it needs by another.
//!
//! Which replicas there are is looked up at the start and after a failure, and told through the tunnels when it
//! changes. A tunnel to a replica that is no longer named goes on until it ends by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use drover_socket::tunnel::{PROTOCOL, TUNNEL_PATH};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use drover_api::gateway::GatewayPort;

use super::dial::Door;
use super::dialer::Dialer;
use super::serve::{News, serve};
use crate::config::AgentConfig;
use crate::random::Random;
use crate::socket::Server;
use drover_store::Store;

/// The most tunnels.
const MOST_TUNNELS: usize = 4;
/// How often it is looked which replicas there are, whatever is told.
const LOOK_EVERY: Duration = Duration::from_mins(10);
/// The same after a tunnel has ended or could not be opened, and while no replica is known.
const LOOK_SOON: Duration = Duration::from_secs(2);
/// The pauses between dials while there is no tunnel at all.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Over how long dials are spread while another tunnel is open: thousands of agents lose theirs at the same moment, and
/// none of them is in need.
const SPREAD: Duration = Duration::from_secs(30);
/// The same for a replica that is new.
const FIRST_SPREAD: Duration = Duration::from_secs(5);
/// What was told and not read yet; tellers wait then.
const UNREAD_NEWS: usize = 16;

/// The agent's tunnels.
#[derive(Debug)]
pub(crate) struct Tunnels<S> {
    line: Line<S>,
    news: mpsc::Receiver<News>,
    wanted: watch::Sender<BTreeSet<String>>,
    /// Which replicas an agent takes where there are too many differs from agent to agent.
    taste: RandomState,
}

/// What each tunnel needs.
#[derive(Clone, Debug)]
struct Line<S> {
    dialer: Dialer<S>,
    server: Server,
    random: Random,
    news: mpsc::Sender<News>,
    wanted: watch::Receiver<BTreeSet<String>>,
    /// Tunnels that are open.
    open: watch::Sender<usize>,
    failed: Arc<Notify>,
}

impl<S: Store> Tunnels<S> {
    /// Tunnels as the configuration says; none where it names no token.
    pub(crate) fn new(config: &AgentConfig, store: S, server: Server) -> Option<Self> {
        let (tell, news) = mpsc::channel(UNREAD_NEWS);
        let wanted = watch::Sender::new(BTreeSet::new());
        let line = Line {
            dialer: Dialer::new(config, store)?,
            server,
            random: Random::new(),
            news: tell,
            wanted: wanted.subscribe(),
            open: watch::Sender::default(),
            failed: Arc::default(),
        };
        Some(Self { line, news, wanted, taste: RandomState::new() })
    }

    /// Keeps them until it is dropped, and ends them then.
    pub(crate) async fn run(mut self) {
        let mut held: BTreeMap<String, Id> = BTreeMap::new();
        let mut lines: JoinSet<()> = JoinSet::new();
        let mut next_look = Instant::now();
        loop {
            for address in self.wanted.borrow().iter() {
                let line = &self.line;
                held.entry(address.clone()).or_insert_with(|| lines.spawn(line.clone().hold(address.clone())).id());
            }
            tokio::select! {
                biased;
                Some(ended) = lines.join_next_with_id() => {
                    let id = match ended {
                        Ok((id, ())) => id,
                        Err(error) => {
                            tracing::error!(%error, "a tunnel broke off");
                            error.id()
                        }
                    };
                    held.retain(|_, of| *of != id);
                }
                Some(news) = self.news.recv() => self.hear(&news),
                () = tokio::time::sleep_until(next_look) => {
                    self.look().await;
                    let pause = if self.wanted.borrow().is_empty() { LOOK_SOON } else { LOOK_EVERY };
                    next_look = Instant::now() + self.line.random.jitter(pause);
                }
                () = self.line.failed.notified() => {
                    next_look = next_look.min(Instant::now() + self.line.random.jitter(LOOK_SOON));
                }
            }
        }
    }

    async fn look(&self) {
        match self.line.dialer.replicas().addresses(GatewayPort::Agents).await {
            Ok(addresses) => self.want(addresses),
            // Those that are open stay open.
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "the gateway's replicas are unknown");
            }
        }
    }

    /// Takes in what a replica tells.
    fn hear(&self, news: &News) {
        if self.line.dialer.replicas().are_named() {
            return;
        }
        if !news.replicas.ready.is_empty() {
            self.want(news.replicas.ready.iter().map(SocketAddr::to_string).collect());
        }
        if news.replicas.is_leaving {
            self.wanted.send_if_modified(|wanted| wanted.remove(&news.from));
        }
    }

    fn want(&self, addresses: BTreeSet<String>) {
        let next = choose(addresses, &self.wanted.borrow(), |address| self.taste.hash_one(address));
        self.wanted.send_if_modified(|wanted| {
            let is_news = *wanted != next;
            *wanted = next;
            is_news
        });
    }
}

/// The replicas to dial: those that are dialled stay, and others are taken in the order of `taste`.
fn choose(addresses: BTreeSet<String>, now: &BTreeSet<String>, taste: impl Fn(&str) -> u64) -> BTreeSet<String> {
    let mut ordered: Vec<String> = addresses.into_iter().collect();
    ordered.sort_by_key(|address| (!now.contains(address), taste(address)));
    ordered.into_iter().take(MOST_TUNNELS).collect()
}

/// Counts a tunnel as long as it is open.
struct OpenTunnel<'a>(&'a watch::Sender<usize>);

impl<'a> OpenTunnel<'a> {
    fn count(open: &'a watch::Sender<usize>) -> Self {
        open.send_modify(|n| *n += 1);
        Self(open)
    }
}

impl Drop for OpenTunnel<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|n| *n -= 1);
    }
}

impl<S: Store> Line<S> {
    /// Dials again and again, as long as the replica is wanted.
    async fn hold(mut self, address: String) {
        let mut pause = FIRST_PAUSE;
        if *self.open.borrow() > 0 && !self.is_wanted_after(Duration::ZERO, FIRST_SPREAD, &address).await {
            return;
        }
        loop {
            match self.open(&address).await {
                Ok(()) => pause = FIRST_PAUSE,
                Err(reason) => {
                    tracing::warn!(address, reason, "there is no tunnel to the gateway");
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
            self.failed.notify_one();
            if !self.is_wanted_after(pause, SPREAD, &address).await {
                return tracing::info!(address, "the replica of the gateway is dialled no more");
            }
        }
    }

    /// Waits: long while another tunnel is open, shortly while there is none.
    async fn is_wanted_after(&mut self, pause: Duration, spread: Duration, address: &str) -> bool {
        let mut open = self.open.subscribe();
        let unwanted = self.wanted.wait_for(|wanted| !wanted.contains(address));
        let mut unwanted = std::pin::pin!(unwanted);
        if *open.borrow_and_update() > 0 {
            tokio::select! {
                biased;
                _ = &mut unwanted => return false,
                () = tokio::time::sleep(pause.max(self.random.below(spread))) => return true,
                // The last one has ended meanwhile.
                _ = open.wait_for(|n| *n == 0) => {}
            }
        }
        tokio::time::timeout(self.random.jitter(pause), unwanted).await.is_err()
    }

    /// Opens a tunnel and answers through it until it ends.
    async fn open(&mut self, address: &str) -> Result<(), String> {
        let tasks = TaskTracker::new();
        let door = Door { path: TUNNEL_PATH, protocol: PROTOCOL };
        let tunnel = self.dialer.open(address, door, &tasks).await?;
        let _open = OpenTunnel::count(&self.open);
        tracing::info!(address, "a tunnel to the gateway is open");
        let tell = (address.to_owned(), self.news.clone());
        match serve(tunnel, self.server.clone(), &tasks, tell).await {
            Ok(()) => tracing::info!(address, "a tunnel to the gateway has ended"),
            Err(error) => tracing::info!(address, %error, "a tunnel to the gateway broke"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn four_replicas_are_dialled_and_those_that_are_stay() {
        let by_name = |address: &str| u64::from(address.as_bytes()[0]);
        let all = ["a", "b", "c", "d", "e", "f"];
        assert_eq!(choose(set(&all), &set(&[]), by_name), set(&["a", "b", "c", "d"]));
        assert_eq!(choose(set(&all), &set(&["f", "e"]), by_name), set(&["a", "b", "e", "f"]));
        assert_eq!(choose(set(&["b"]), &set(&["a"]), by_name), set(&["b"]));
    }
}
