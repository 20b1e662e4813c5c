//! The connection to a replica of the gateway: open as long as anything is followed, and opened again when it breaks.

use std::collections::BTreeSet;
use std::time::Duration;

use drover_socket::values::{MAX_VALUE_BYTES, VALUES_PATH, VALUES_PROTOCOL, ValueAsk, ValueNews};
use futures::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio_util::codec::{FramedRead, FramedWrite, LinesCodec};
use tokio_util::task::TaskTracker;

use super::requests::ValueRequests;
use crate::config::AgentConfig;
use crate::gateway::{Dialer, Door};
use crate::random::Random;
use drover_store::Store;

/// The pauses between dials.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// How often the token's file is read again; the kubelet renews it long before it expires.
const TOKEN_EVERY: Duration = Duration::from_mins(5);
/// How long a connection stays open that nothing uses.
const IDLE_FOR: Duration = Duration::from_mins(1);

/// What is asked for.
const DOOR: Door = Door { path: VALUES_PATH, protocol: VALUES_PROTOCOL };

/// Keeps the connection.
#[derive(Debug)]
pub(crate) struct ValueKeeper<S> {
    dialer: Dialer<S>,
    requests: ValueRequests,
    random: Random,
}

/// How a connection ended.
enum End {
    /// Nothing is followed.
    Idle,
    /// It broke: why.
    Broken(String),
}

impl<S: Store> ValueKeeper<S> {
    /// As the configuration says; none where it names no token.
    pub(crate) fn new(config: &AgentConfig, store: S, requests: ValueRequests) -> Option<Self> {
        Some(Self { dialer: Dialer::new(config, store)?, requests, random: Random::new() })
    }

    /// Keeps it until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        let mut last = String::new();
        loop {
            if self.requests.is_empty() {
                self.requests.changed().await;
                continue;
            }
            let tasks = TaskTracker::new();
            let reason = match self.dialer.open_one(DOOR, &last, &self.random, &tasks).await {
                Ok((address, connection)) => {
                    last = address;
                    pause = FIRST_PAUSE;
                    match self.converse(connection).await {
                        End::Idle => continue,
                        End::Broken(reason) => reason,
                    }
                }
                Err(reason) => reason,
            };
            tracing::info!(reason, "there is no connection to the gateway for values");
            self.requests.wait_because(&format!("the gateway does not answer: {reason}"));
            tokio::time::sleep(self.random.jitter(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn converse(&self, connection: Upgraded) -> End {
        let (reading, writing) = tokio::io::split(TokioIo::new(connection));
        let mut news = FramedRead::new(reading, LinesCodec::new_with_max_length(MAX_VALUE_BYTES));
        let mut lines = FramedWrite::new(writing, LinesCodec::new());
        let (mut asked, mut token) = (BTreeSet::new(), String::new());
        let mut renewal = tokio::time::interval_at(tokio::time::Instant::now() + TOKEN_EVERY, TOKEN_EVERY);
        loop {
            for ask in self.requests.news_for(&mut asked) {
                if let Err(error) = send(&mut lines, &ask).await {
                    return End::Broken(error);
                }
            }
            let is_idle = asked.is_empty();
            tokio::select! {
                biased;
                line = news.next() => match line {
                    None => return End::Broken("it ended the connection".to_owned()),
                    Some(Err(error)) => return End::Broken(error.to_string()),
                    Some(Ok(line)) => match serde_json::from_str::<ValueNews>(&line) {
                        Ok(news) => self.requests.hear(news),
                        // The text is not shown: it may hold a value.
                        Err(_) => return End::Broken("what it sends is not understood".to_owned()),
                    },
                },
                () = self.requests.changed() => {}
                _ = renewal.tick() => match tokio::fs::read_to_string(self.dialer.token_file()).await {
                    Ok(read) if read != token => {
                        let ask = ValueAsk::Token { token: read.trim().to_owned() };
                        if let Err(error) = send(&mut lines, &ask).await {
                            return End::Broken(error);
                        }
                        token = read;
                    }
                    Ok(_) => {}
                    Err(error) => return End::Broken(format!("the token cannot be read: {error}")),
                },
                () = tokio::time::sleep(IDLE_FOR), if is_idle => return End::Idle,
            }
        }
    }
}

async fn send<W>(lines: &mut FramedWrite<W, LinesCodec>, ask: &ValueAsk) -> Result<(), String>
where
    W: tokio::io::AsyncWrite + Unpin,
{
    let line = serde_json::to_string(ask).map_err(|error| error.to_string())?;
    lines.send(line).await.map_err(|error| error.to_string())
}
