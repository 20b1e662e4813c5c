//! What is known of the cluster, from one watch per kind, and who waits for changes of it.
//!
//! Input: the watches. Output: a snapshot, which costs nothing to take and stays as it is, and a sign for each kind
//! that something of it has changed: a reader that waits takes nothing from the API server. Without the record of
//! writers, which the store leaves out, memory is about that of the objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drover_api::{Allocation, CSIVolume, ClientNode, Deployment, HostVolume, Job, JobVersion};
use drover_nomad::{Happened, Kind, Listed, Name, Table, Turn, World};
use drover_store::{Change, KubeStore, Object, Selection, Store as _};
use futures::future::BoxFuture;
use futures::stream::{BoxStream, select_all};
use futures::{FutureExt as _, Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Namespace;
use tokio::sync::watch;

use super::events::{Feed, Intake};
use crate::answers::Refusal;
use crate::tunnels::Arrivals;

/// Changes that are taken in before readers see them; more wait.
const MOST_AT_ONCE: usize = 512;
/// How long is waited for what was written to be known: by a write for readers of all replicas, by a conflict for what
/// caused it, and by a read for the evaluation of a write through another replica.
pub(super) const SEEN_WITHIN: Duration = Duration::from_secs(2);
/// How long a reader waits for the first lists.
const FIRST_LISTS: Duration = Duration::from_secs(2);

/// A change of the world; it returns what events tell of it.
type Apply = Box<dyn FnOnce(&mut World) -> Vec<Happened> + Send>;

/// The objects of a kind in the world, and what events tell of a change of it; none: nothing.
struct Rows<K: Listed> {
    table: fn(&mut World) -> &mut Table<K>,
    told: fn(Turn<K>) -> Option<Happened>,
}

/// What is known; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Caches {
    world: watch::Sender<Arc<World>>,
    /// For each kind, that something of it has changed.
    news: Arc<BTreeMap<Kind, watch::Sender<()>>>,
    /// None: there is no event stream.
    feed: Option<Feed>,
}

impl Caches {
    /// Nothing is known yet. What changes goes into the feed, where there is one.
    pub(crate) fn new(feed: Option<Feed>) -> Self {
        let news = Kind::ALL.into_iter().map(|kind| (kind, watch::channel(()).0)).collect();
        Self { world: watch::channel(Arc::new(World::default())).0, news: Arc::new(news), feed }
    }

    /// Follows the cluster until it is dropped.
    pub(crate) async fn follow(self, store: KubeStore) {
        let changes = [
            changes::<Job>(&store, Kind::Job, |world| &mut world.jobs, |turn| Some(Happened::Job(turn))),
            changes::<JobVersion>(&store, Kind::Version, |world| &mut world.versions, |_| None),
            changes::<Allocation>(
                &store,
                Kind::Allocation,
                |world| &mut world.allocations,
                |turn| Some(Happened::Allocation(turn)),
            ),
            changes::<Deployment>(
                &store,
                Kind::Deployment,
                |world| &mut world.deployments,
                |turn| Some(Happened::Deployment(turn)),
            ),
            changes::<ClientNode>(&store, Kind::Node, |world| &mut world.nodes, |turn| Some(Happened::Node(turn))),
            changes::<CSIVolume>(&store, Kind::Volume, |world| &mut world.volumes, |turn| Some(Happened::Volume(turn))),
            changes::<HostVolume>(&store, Kind::HostVolume, |world| &mut world.host_volumes, |_| None),
            changes::<Namespace>(&store, Kind::Namespace, |world| &mut world.namespaces, |_| None),
        ];
        self.take(select_all(changes)).await;
    }

    async fn take(&self, changes: impl Stream<Item = (Kind, Apply)>) {
        let mut world = World::default();
        let mut intake = Intake::new(self.feed.clone());
        let mut chunks = std::pin::pin!(changes.ready_chunks(MOST_AT_ONCE));
        loop {
            let chunk = tokio::select! {
                biased;
                chunk = chunks.next() => chunk,
                () = intake.ripens() => continue,
            };
            let Some(chunk) = chunk else { break };
            let n_steps_back = n_steps_back(&world);
            let (mut kinds, mut told) = (BTreeSet::new(), Vec::new());
            for (kind, apply) in chunk {
                // What is there at the start has not changed.
                let is_news = intake.is_on() && world.is_complete();
                let of_it = apply(&mut world);
                told.extend(of_it.into_iter().filter(|_| is_news));
                kinds.insert(kind);
            }
            self.world.send_replace(Arc::new(world.clone()));
            for news in kinds.iter().filter_map(|kind| self.news.get(kind)) {
                news.send_replace(());
            }
            if self::n_steps_back(&world) == n_steps_back {
                intake.take(&told, &world);
            } else {
                intake.begins_again();
            }
        }
        intake.ends();
    }

    /// What subscribers of the event stream follow; none: there is no such stream.
    pub(super) const fn feed(&self) -> Option<&Feed> {
        self.feed.as_ref()
    }

    /// What is known now.
    pub(super) fn now(&self) -> Arc<World> {
        Arc::clone(&self.world.borrow())
    }

    /// What is known once every kind's objects have come.
    ///
    /// # Errors
    /// 503 when they do not come.
    pub(super) async fn complete(&self) -> Result<Arc<World>, Refusal> {
        let mut states = self.world.subscribe();
        let found = match tokio::time::timeout(FIRST_LISTS, states.wait_for(|world| world.is_complete())).await {
            Ok(Ok(world)) => Some(Arc::clone(&world)),
            Ok(Err(_)) | Err(_) => None,
        };
        found.ok_or_else(|| Refusal::new(503, "this replica does not know all objects yet: try again in a few seconds"))
    }

    /// Waits until of each kind is known what it was at its index, for a short while; whether it is.
    pub(super) async fn reach(&self, states: &[(Kind, u64)]) -> bool {
        let until = async {
            for &(kind, index) in states {
                let Some(mut news) = self.news(kind) else { continue };
                while self.now().index(kind) < index && news.changed().await.is_ok() {}
            }
        };
        tokio::time::timeout(SEEN_WITHIN, until).await.is_ok()
    }

    /// Says when something of a kind changes from now on.
    pub(super) fn news(&self, kind: Kind) -> Option<watch::Receiver<()>> {
        self.news.get(&kind).map(watch::Sender::subscribe)
    }
}

impl Arrivals for Caches {
    fn arrive<'a>(&'a self, written: &'a str) -> BoxFuture<'a, Result<(), Refusal>> {
        async move {
            let states: Vec<(Kind, u64)> = serde_json::from_str(written)
                .map_err(|error| Refusal::new(400, format!("what was written cannot be read: {error}")))?;
            let has_come = self.reach(&states).await;
            if has_come { Ok(()) } else { Err(Refusal::new(504, "it has not come here yet")) }
        }
        .boxed()
    }
}

fn n_steps_back(world: &World) -> u64 {
    Kind::ALL.into_iter().map(|kind| world.n_steps_back(kind)).sum()
}

/// The changes of a kind.
fn changes<K: Listed + Object>(
    store: &KubeStore,
    kind: Kind,
    table: fn(&mut World) -> &mut Table<K>,
    told: fn(Turn<K>) -> Option<Happened>,
) -> BoxStream<'static, (Kind, Apply)> {
    let (changes, rows) = (store.watch::<K>(Selection::default()), Rows { table, told });
    changes.filter_map(move |change| std::future::ready(apply(change, &rows).map(|apply| (kind, apply)))).boxed()
}

fn apply<K: Listed + Object>(change: Change<K>, rows: &Rows<K>) -> Option<Apply> {
    let Rows { table, told } = *rows;
    match change {
        Change::Restarted => Some(Box::new(move |world| {
            table(world).begin();
            Vec::new()
        })),
        Change::Present(object) => {
            Some(Box::new(move |world| table(world).put(*object).and_then(told).into_iter().collect()))
        }
        Change::InSync => Some(Box::new(move |world| table(world).end().into_iter().filter_map(told).collect())),
        Change::Gone(object) => {
            Some(Box::new(move |world| table(world).remove(&object).and_then(told).into_iter().collect()))
        }
        Change::Malformed(key, reason) => {
            tracing::error!(kind = %K::kind(&()), %key, reason, "an object cannot be read and is shown as it was; correct or delete it");
            let name = Name::new(key.namespace.unwrap_or_default(), key.name);
            Some(Box::new(move |world| {
                table(world).keep(&name);
                Vec::new()
            }))
        }
        Change::Interrupted(reason) => {
            tracing::debug!(kind = %K::kind(&()), reason, "a watch broke and restarts");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use drover_nomad::Next;
    use futures::stream;

    use super::*;

    fn node(version: u64) -> Box<ClientNode> {
        let mut node = ClientNode::new("a", drover_api::ClientNodeSpec::default());
        (node.metadata.uid, node.metadata.resource_version) = (Some("u".to_owned()), Some(version.to_string()));
        Box::new(node)
    }

    fn of(changes: Vec<Change<ClientNode>>) -> Vec<(Kind, Apply)> {
        let rows = Rows { table: |world| &mut world.nodes, told: |turn| Some(Happened::Node(turn)) };
        let all = changes.into_iter().filter_map(|change| apply(change, &rows));
        all.map(|apply| (Kind::Node, apply)).collect()
    }

    /// A list of nothing, of every kind.
    fn lists() -> Vec<(Kind, Apply)> {
        fn of<K: Listed + Object>(kind: Kind, table: fn(&mut World) -> &mut Table<K>) -> Vec<(Kind, Apply)> {
            let rows = Rows { table, told: |_| None };
            let list = [Change::Restarted, Change::InSync].into_iter();
            list.filter_map(|change| apply::<K>(change, &rows)).map(|apply| (kind, apply)).collect()
        }
        let mut all = of::<Job>(Kind::Job, |world| &mut world.jobs);
        all.extend(of::<JobVersion>(Kind::Version, |world| &mut world.versions));
        all.extend(of::<Allocation>(Kind::Allocation, |world| &mut world.allocations));
        all.extend(of::<Deployment>(Kind::Deployment, |world| &mut world.deployments));
        all.extend(of::<CSIVolume>(Kind::Volume, |world| &mut world.volumes));
        all.extend(of::<HostVolume>(Kind::HostVolume, |world| &mut world.host_volumes));
        all.extend(of::<Namespace>(Kind::Namespace, |world| &mut world.namespaces));
        all
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_there_at_the_start_is_no_event_and_what_changes_then_is_one() {
        let kept = async |changes: Vec<(Kind, Apply)>| {
            let feed = Feed::new(10);
            Caches::new(Some(feed.clone())).take(stream::iter(changes)).await;
            let buffer = feed.subscribe();
            let found = buffer.borrow();
            let at = (0..10).map(|position| found.at(position));
            at.map_while(|it| if let Next::Commit(commit) = it { Some(commit.index()) } else { None })
                .collect::<Vec<_>>()
        };
        let with = |changes: Vec<Change<ClientNode>>| lists().into_iter().chain(of(changes)).collect();
        let listed = || vec![Change::Restarted, Change::Present(node(7)), Change::InSync];
        assert_eq!(kept(with(listed())).await, [0; 0]);
        let mut changes = listed();
        changes.extend([Change::Gone(node(9)), Change::Present(node(10))]);
        // The watch breaks, and nothing has changed when it is there again.
        changes.extend([Change::Restarted, Change::Present(node(10)), Change::InSync]);
        assert_eq!(kept(with(changes)).await, [9, 10]);
        // After the return to an older state all begin again.
        let mut changes = listed();
        changes.extend([Change::Gone(node(9)), Change::Present(node(10)), Change::Present(node(4))]);
        assert_eq!(kept(with(changes)).await, [0; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_kind_hears_of_it_and_of_no_other_and_a_snapshot_stays_as_it_is() {
        let caches = Caches::new(None);
        let (nodes, jobs) = (caches.news(Kind::Node).expect("nodes"), caches.news(Kind::Job).expect("jobs"));
        caches.take(stream::iter(of(vec![Change::Restarted, Change::Present(node(7)), Change::InSync]))).await;
        assert_eq!((nodes.has_changed().ok(), jobs.has_changed().ok()), (Some(true), Some(false)));
        let before = caches.now();
        assert_eq!((before.nodes.len(), before.index(Kind::Node)), (1, 7));
        caches.take(stream::iter(of(vec![Change::Gone(node(8))]))).await;
        assert_eq!((before.nodes.len(), caches.now().nodes.len()), (1, 0));
        assert_eq!(caches.complete().await.map(drop).map_err(|it| it.code), Err(503), "not every kind has come");
    }
}
