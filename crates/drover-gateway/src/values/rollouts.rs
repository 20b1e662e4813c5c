//! Roll-outs of new values, each shared by those who follow one object for allocations of one group: whose turn it is.
//!
//! Each watches the job's allocations as long as it is followed. What it knows is what their agents have reported.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use drover_api::Allocation;
use drover_api::group::Group;
use drover_api::value_object::ValueObject;
use drover_clock::SharedClock;
use drover_core::rolling::{RollingPolicy, RolloutView, Turn, ValueRollout};
use drover_socket::values::ValueAnswer;
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch_all};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::objects::Objects;

/// A group of a job, and an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RolloutKey {
    pub(super) namespace: String,
    pub(super) job: String,
    pub(super) job_uid: String,
    pub(super) group: String,
    pub(super) object: ValueObject,
}

/// How a group's allocations get values, by a version of the job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pace {
    pub(super) job_version: i64,
    pub(super) policy: RollingPolicy,
    pub(super) group: Group,
}

/// Whose turn it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Standing {
    /// The version of the values that it is about; empty: nothing is known yet.
    newest: String,
    turns: BTreeMap<String, Turn>,
}

/// All of them; clones are the same.
#[derive(Clone)]
pub(super) struct Rollouts {
    client: Client,
    objects: Objects,
    clock: SharedClock,
    open: Arc<Mutex<BTreeMap<RolloutKey, Weak<SharedRollout>>>>,
    tasks: TaskTracker,
}

/// One that is followed, until the last who does lets it go.
struct SharedRollout {
    pace: watch::Sender<Pace>,
    standing: watch::Receiver<Standing>,
    _until: DropGuard,
}

/// A part in one.
pub(super) struct Membership {
    rollout: Arc<SharedRollout>,
    standing: watch::Receiver<Standing>,
}

impl Rollouts {
    /// None is followed yet.
    pub(super) fn new(client: Client, objects: Objects, clock: SharedClock) -> Self {
        Self { client, objects, clock, open: Arc::default(), tasks: TaskTracker::new() }
    }

    /// Takes part. The pace is that of the newest version of the job that any part has.
    pub(super) fn join(&self, key: &RolloutKey, pace: Pace) -> Membership {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, rollout| rollout.strong_count() > 0);
        let rollout = open.get(key).and_then(Weak::upgrade).unwrap_or_else(|| {
            let fresh = Arc::new(self.begin(key.clone(), pace.clone()));
            open.insert(key.clone(), Arc::downgrade(&fresh));
            fresh
        });
        rollout.adopt(pace);
        let standing = rollout.standing.clone();
        Membership { rollout, standing }
    }

    fn begin(&self, key: RolloutKey, pace: Pace) -> SharedRollout {
        let (pace, paces) = watch::channel(pace);
        let (tell, standing) = watch::channel(Standing::default());
        let until = CancellationToken::new();
        let guard = until.clone().drop_guard();
        let it = self.clone();
        drop(self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = until.cancelled() => {}
                () = it.follow(&key, paces, &tell) => {}
            }
        }));
        SharedRollout { pace, standing, _until: guard }
    }

    async fn follow(&self, key: &RolloutKey, mut paces: watch::Receiver<Pace>, tell: &watch::Sender<Standing>) {
        let watched = self.objects.want(&key.namespace, &key.object);
        let mut known = watched.known();
        let api: Api<Allocation> = Api::namespaced(self.client.clone(), &key.namespace);
        let selection = watcher::Config::default().fields(&format!("spec.jobName={}", key.job));
        let mut changes = std::pin::pin!(watch_all(api, selection).default_backoff());
        let (mut group, mut rollout) = (GroupTable::default(), ValueRollout::default());
        loop {
            let now = self.clock.now();
            let newest = known.borrow_and_update().clone();
            let newest = newest.filter(|read| matches!(read.answer, ValueAnswer::Values(_)));
            let mut wake_at = None;
            if let Some(read) = newest.filter(|_| group.is_complete) {
                let pace = paces.borrow_and_update().clone();
                let (policy, newest) = (pace.policy, read.version.as_str());
                let view = RolloutView { policy, group: &pace.group, object: &key.object, newest };
                let step = rollout.step(view, group.known.values(), now);
                wake_at = step.wake_at;
                let next = Standing { newest: newest.to_owned(), turns: step.turns };
                tell.send_if_modified(|standing| {
                    let is_news = *standing != next;
                    *standing = next;
                    is_news
                });
            }
            tokio::select! {
                biased;
                Ok(()) = known.changed() => {}
                Ok(()) = paces.changed() => {}
                Some(change) = changes.next() => match change {
                    Ok(event) => group.take(key, event),
                    Err(error) => tracing::debug!(%error, "a watch of allocations restarts"),
                },
                () = wake(wake_at, now) => {}
            }
        }
    }
}

async fn wake(at: Option<Timestamp>, now: Timestamp) {
    match at {
        Some(at) => tokio::time::sleep(Duration::try_from(at.duration_since(now)).unwrap_or_default()).await,
        None => std::future::pending().await,
    }
}

/// The allocations of a group, by name.
#[derive(Debug, Default)]
struct GroupTable {
    known: BTreeMap<String, Allocation>,
    /// Those of a list that has begun.
    listed: BTreeMap<String, Allocation>,
    is_complete: bool,
}

impl GroupTable {
    fn take(&mut self, key: &RolloutKey, event: Event<Allocation>) {
        let is_of = |alloc: &Allocation| alloc.spec.job_uid == key.job_uid && alloc.spec.group == key.group;
        let slim = |mut alloc: Allocation| {
            alloc.metadata.managed_fields = None;
            (alloc.metadata.name.clone().unwrap_or_default(), alloc)
        };
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(alloc) => self.listed.extend(Some(alloc).filter(is_of).map(slim)),
            Event::InitDone => (self.known, self.is_complete) = (std::mem::take(&mut self.listed), true),
            Event::Apply(alloc) => self.known.extend(Some(alloc).filter(is_of).map(slim)),
            Event::Delete(alloc) => drop(self.known.remove(&slim(alloc).0)),
        }
    }
}

impl Membership {
    /// What an allocation is to do about the values of this version; none: that is not known yet.
    pub(super) fn turn(&mut self, uid: &str, version: &str) -> Option<Turn> {
        let standing = self.standing.borrow_and_update();
        if standing.newest != version {
            return None;
        }
        // Of one that runs and of which nothing is known, a report will come.
        Some(standing.turns.get(uid).cloned().unwrap_or(Turn::Waits))
    }

    /// Waits until a turn has changed.
    pub(super) async fn changed(&mut self) {
        if self.standing.changed().await.is_err() {
            // The watch goes on as long as this part.
            std::future::pending::<()>().await;
        }
    }

    /// Takes in a newer version of the job.
    pub(super) fn adopt(&self, pace: Pace) {
        self.rollout.adopt(pace);
    }
}

impl SharedRollout {
    fn adopt(&self, pace: Pace) {
        self.pace.send_if_modified(|known| {
            let is_news = known.job_version < pace.job_version;
            if is_news {
                *known = pace;
            }
            is_news
        });
    }
}

#[cfg(test)]
mod tests {
    use drover_api::value_object::ValueKind;
    use serde_json::json;

    use super::*;

    fn key() -> RolloutKey {
        let object = ValueObject { kind: ValueKind::Secret, name: "db".to_owned() };
        let text = str::to_owned;
        RolloutKey { namespace: text("shop"), job: text("web"), job_uid: text("u"), group: text("g"), object }
    }

    fn alloc(name: &str, uid: &str, group: &str) -> Allocation {
        serde_json::from_value(json!({
            "apiVersion": "drover.dev/v1alpha1", "kind": "Allocation", "metadata": { "name": name },
            "spec": { "jobName": "web", "jobUID": uid, "jobVersion": 0, "group": group, "index": 0, "nodeName": "n" },
        }))
        .expect("an allocation")
    }

    #[test]
    fn the_allocations_are_those_of_the_group_and_of_this_job_once_the_list_is_whole() {
        let mut table = GroupTable::default();
        let names = |table: &GroupTable| table.known.keys().cloned().collect::<Vec<_>>();
        table.take(&key(), Event::Init);
        for (name, uid, group) in [("a", "u", "g"), ("b", "earlier", "g"), ("c", "u", "h")] {
            table.take(&key(), Event::InitApply(alloc(name, uid, group)));
        }
        assert!(!table.is_complete && names(&table).is_empty());
        table.take(&key(), Event::InitDone);
        assert!(table.is_complete && names(&table) == ["a"]);
        table.take(&key(), Event::Apply(alloc("d", "u", "g")));
        table.take(&key(), Event::Delete(alloc("a", "u", "g")));
        assert_eq!(names(&table), ["d"]);
        // A list that begins again replaces what was known, when it is whole.
        table.take(&key(), Event::Init);
        assert_eq!(names(&table), ["d"]);
        table.take(&key(), Event::InitDone);
        assert_eq!(names(&table), Vec::<String>::new());
    }
}
