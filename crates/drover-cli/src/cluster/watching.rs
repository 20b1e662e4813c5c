//! Watches one object until it is where a command wants it. Ctrl-C and the end of the user's patience end the looking,
//! never the work.

use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, bail};
use drover_api::GoDuration;
use futures::StreamExt as _;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use crate::cluster::objects::Objects;
use crate::ui::follow::{FOREVER, INTERRUPTED, TIMED_OUT};
use crate::ui::stdio::complain;

/// How an object is watched.
#[derive(Debug)]
pub(crate) struct Watching {
    /// What goes on meanwhile, as `the drain`.
    pub(crate) what: &'static str,
    /// The command that looks again.
    pub(crate) again: String,
    /// How long to look.
    patience: Duration,
}

impl Watching {
    pub(crate) fn new(what: &'static str, again: String, timeout: Option<GoDuration>) -> Self {
        Self { what, again, patience: timeout.map_or(FOREVER, GoDuration::to_std) }
    }

    /// Shows `judge` the object each time it changes, and nothing when it is gone, until that says with which code the
    /// command ends.
    pub(crate) async fn until<K>(
        &self,
        objects: &Objects<K>,
        found: &K,
        judge: impl FnMut(Option<K>) -> anyhow::Result<Option<u8>>,
    ) -> anyhow::Result<u8>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + DeserializeOwned + 'static,
    {
        let Self { what, again, patience } = self;
        tokio::select! {
            biased;
            signal = tokio::signal::ctrl_c() => {
                signal.context("listening for Ctrl-C")?;
                complain(&format!("detached: {what} goes on; look again with `{again}`"));
                Ok(INTERRUPTED)
            }
            over = tokio::time::timeout(*patience, watch(objects, found, judge)) => over.unwrap_or_else(|_| {
                complain(&format!("timed out: {what} is not over yet; look again with `{again}`"));
                Ok(TIMED_OUT)
            }),
        }
    }
}

async fn watch<K>(
    objects: &Objects<K>,
    found: &K,
    mut judge: impl FnMut(Option<K>) -> anyhow::Result<Option<u8>>,
) -> anyhow::Result<u8>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + DeserializeOwned + 'static,
{
    let name = found.name_any();
    let mut changes = pin!(watch_object(objects.api.clone(), &name).default_backoff());
    while let Some(change) = changes.next().await {
        let now = match change {
            Ok(now) => now.filter(|now| now.meta().uid == found.meta().uid),
            Err(why) => {
                complain(&format!("the watch broke and restarts: {why}"));
                continue;
            }
        };
        if let Some(code) = judge(now)? {
            return Ok(code);
        }
    }
    bail!("the watch of {name} has ended")
}
