//! What is known of the cluster, from one watch per kind, and who waits for changes of it.
//!
//! Input: the watches. Output: a snapshot, which costs nothing to take and stays as it is, and a sign for each kind
//! that something of it has changed: a reader that waits takes nothing from the API server. Without the record of
//! writers, which the store leaves out, memory is about that of the objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drover_api::{Allocation, CSIVolume, ClientNode, Deployment, Job, JobVersion};
use drover_nomad::{Kind, Listed, Name, Table, World};
use drover_store::{Change, KubeStore, Object, Selection, Store as _};
use futures::stream::{BoxStream, select_all};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Namespace;
use tokio::sync::watch;

use crate::answers::Refusal;

/// Changes that are taken in before readers see them; more wait.
const MOST_AT_ONCE: usize = 512;
/// How long a reader waits for the first lists.
const FIRST_LISTS: Duration = Duration::from_secs(2);

/// A change of the world.
type Apply = Box<dyn FnOnce(&mut World) + Send>;

/// What is known; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Caches {
    world: watch::Sender<Arc<World>>,
    /// For each kind, that something of it has changed.
    news: Arc<BTreeMap<Kind, watch::Sender<()>>>,
}

impl Caches {
    /// Nothing is known yet.
    pub(crate) fn new() -> Self {
        let news = Kind::ALL.into_iter().map(|kind| (kind, watch::channel(()).0)).collect();
        Self { world: watch::channel(Arc::new(World::default())).0, news: Arc::new(news) }
    }

    /// Follows the cluster until it is dropped.
    pub(crate) async fn follow(self, store: KubeStore) {
        let changes = [
            changes::<Job>(&store, Kind::Job, |world| &mut world.jobs),
            changes::<JobVersion>(&store, Kind::Version, |world| &mut world.versions),
            changes::<Allocation>(&store, Kind::Allocation, |world| &mut world.allocations),
            changes::<Deployment>(&store, Kind::Deployment, |world| &mut world.deployments),
            changes::<ClientNode>(&store, Kind::Node, |world| &mut world.nodes),
            changes::<CSIVolume>(&store, Kind::Volume, |world| &mut world.volumes),
            changes::<Namespace>(&store, Kind::Namespace, |world| &mut world.namespaces),
        ];
        self.take(select_all(changes)).await;
    }

    async fn take(&self, changes: impl Stream<Item = (Kind, Apply)>) {
        let mut world = World::default();
        let mut chunks = std::pin::pin!(changes.ready_chunks(MOST_AT_ONCE));
        while let Some(chunk) = chunks.next().await {
            let mut kinds = BTreeSet::new();
            for (kind, apply) in chunk {
                apply(&mut world);
                kinds.insert(kind);
            }
            self.world.send_replace(Arc::new(world.clone()));
            for news in kinds.iter().filter_map(|kind| self.news.get(kind)) {
                news.send_replace(());
            }
        }
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

    /// Says when something of a kind changes from now on.
    pub(super) fn news(&self, kind: Kind) -> Option<watch::Receiver<()>> {
        self.news.get(&kind).map(watch::Sender::subscribe)
    }
}

/// The changes of a kind.
fn changes<K: Listed + Object>(
    store: &KubeStore,
    kind: Kind,
    table: fn(&mut World) -> &mut Table<K>,
) -> BoxStream<'static, (Kind, Apply)> {
    let changes = store.watch::<K>(Selection::default());
    changes.filter_map(move |change| std::future::ready(apply(change, table).map(|apply| (kind, apply)))).boxed()
}

fn apply<K: Listed + Object>(change: Change<K>, table: fn(&mut World) -> &mut Table<K>) -> Option<Apply> {
    match change {
        Change::Restarted => Some(Box::new(move |world| table(world).begin())),
        Change::Present(object) => Some(Box::new(move |world| table(world).put(*object))),
        Change::InSync => Some(Box::new(move |world| table(world).end())),
        Change::Gone(object) => Some(Box::new(move |world| table(world).remove(&object))),
        Change::Malformed(key, reason) => {
            tracing::error!(kind = %K::kind(&()), %key, reason, "an object cannot be read and is shown as it was; correct or delete it");
            let name = Name::new(key.namespace.unwrap_or_default(), key.name);
            Some(Box::new(move |world| table(world).keep(&name)))
        }
        Change::Interrupted(reason) => {
            tracing::debug!(kind = %K::kind(&()), reason, "a watch broke and restarts");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    fn node(version: u64) -> Box<ClientNode> {
        let mut node = ClientNode::new("a", drover_api::ClientNodeSpec::default());
        (node.metadata.uid, node.metadata.resource_version) = (Some("u".to_owned()), Some(version.to_string()));
        Box::new(node)
    }

    fn of(changes: Vec<Change<ClientNode>>) -> Vec<(Kind, Apply)> {
        let all = changes.into_iter().filter_map(|change| apply(change, |world| &mut world.nodes));
        all.map(|apply| (Kind::Node, apply)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_kind_hears_of_it_and_of_no_other_and_a_snapshot_stays_as_it_is() {
        let caches = Caches::new();
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
