//! A leader with the cluster around it. Nothing happens between the calls of a test.

use std::collections::BTreeSet;
use std::time::Duration;

use drover_api::allocation::{ClientStatus, DesiredStatus};
use drover_api::csi_volume::AttachState;
use drover_api::job::JobType;
use drover_api::volume_request::VolumeRequest;
use drover_api::{Allocation, CSIVolume, ClientNode, Job, LEADER_LEASE};
use drover_clock::SharedClock;
use drover_store::{Key, Object, Part, Precondition, Selection, Store, StoreError};
use futures::stream::{BoxStream, SelectAll};
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::events::v1::Event;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::accidents::Scene;
use super::objects::node;
use super::store::{TestClock, TestStore};
use crate::actions::Action;
use crate::config::ControllerConfig;
use crate::leader_loop::{Input, LeaderLoop};
use crate::recorder::Recorder;
use crate::shared::Shared;
use crate::writer::carry_out;

/// How often agents beat, and the leader proves that it leads.
const BEAT: Duration = Duration::from_secs(4);
/// How long the Lease of a leader that is gone keeps the next one waiting.
const LEASE: Duration = Duration::from_secs(15);
/// Rounds after which what should come to rest never does.
const MOST_ROUNDS: usize = 1000;

/// A cluster with one leader.
pub(crate) struct World {
    pub(crate) store: TestStore,
    pub(crate) leader: LeaderLoop<TestStore>,
    pub(crate) clock: SharedClock,
    inputs: SelectAll<BoxStream<'static, Input>>,
    config: ControllerConfig,
    /// Nodes whose agents are there.
    beating: BTreeSet<String>,
    beats_at: Instant,
    n_leaders: usize,
    /// Evaluations that leaders have made, those that changed nothing too.
    pub(crate) n_evaluations: usize,
    /// Versions of jobs whose allocations never become healthy.
    pub(crate) sick_versions: BTreeSet<i64>,
}

impl World {
    /// An empty cluster, with a leader that has read all there is.
    pub(crate) fn new() -> Self {
        Self::with_config("{}")
    }

    /// The same with these nodes, ready.
    pub(crate) fn with_nodes<const N: usize>(names: [&str; N]) -> Self {
        let mut world = Self::new();
        for name in names {
            world.register(&node(name));
        }
        world
    }

    /// An empty cluster with this configuration of the controller.
    pub(crate) fn with_config(yaml: &str) -> Self {
        let clock = TestClock::shared();
        let store = TestStore::new(clock.clone());
        for name in ["default", drover_api::SYSTEM_NAMESPACE] {
            let mut namespace = Namespace::default();
            namespace.metadata.name = Some(name.to_owned());
            now(store.create(&namespace)).unwrap();
        }
        let config = parsed(yaml);
        let leader = leader(&store, &clock, &config, 0);
        let mut world = Self {
            inputs: leader.inputs(),
            leader,
            store,
            clock,
            config,
            beating: BTreeSet::new(),
            beats_at: Instant::now(),
            n_leaders: 1,
            n_evaluations: 0,
            sick_versions: BTreeSet::new(),
        };
        world.beat();
        world.settle();
        world.store.take_writes();
        world
    }

    /// The next leader has this configuration.
    pub(crate) fn configure(&mut self, yaml: &str) {
        self.config = parsed(yaml);
    }

    /// The leader is gone, and another one begins over the same objects.
    pub(crate) fn elect_another(&mut self) {
        self.leader = leader(&self.store, &self.clock, &self.config, self.n_leaders);
        self.n_leaders += 1;
        self.inputs = self.leader.inputs();
        self.beat();
    }

    /// Takes in what the watches say, and gives what the leader decides to have written: nothing of it is.
    pub(crate) fn decide(&mut self) -> Vec<Action> {
        // A stream of many yields now and then although there is more.
        let mut n_empty = 0;
        while n_empty < 3 {
            match self.inputs.next().now_or_never() {
                Some(Some(input)) => self.leader.take(input),
                Some(None) | None => n_empty += 1,
            }
        }
        self.leader.decide();
        let actions: Vec<Action> = std::iter::from_fn(|| self.leader.shared.outbox.pop()).collect();
        self.n_evaluations += actions.iter().filter(|action| matches!(action, Action::Plan(..))).count();
        actions
    }

    /// Writes what was decided, and tells the leader what became of it.
    pub(crate) fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            let done = now(carry_out(action, self.store.clone()));
            self.leader.take_done(Ok(done));
        }
    }

    /// Lets the leader do all that it can do now.
    pub(crate) fn settle(&mut self) {
        for _ in 0..MOST_ROUNDS {
            let actions = self.decide();
            if actions.is_empty() {
                return;
            }
            self.carry_out(actions);
        }
        panic!("the leader never comes to rest: {:?}", self.store.take_writes().last());
    }

    /// Time passes: agents beat, and the leader does what is due, each at its time.
    pub(crate) async fn advance(&mut self, by: Duration) {
        self.pass(by, |_| false).await;
    }

    /// Time passes while agents do what their allocations ask of them: start, and end.
    pub(crate) async fn live(&mut self, by: Duration) {
        self.pass(by, Self::agents_act).await;
    }

    async fn pass(&mut self, by: Duration, act: impl Fn(&Self) -> bool) {
        let end = Instant::now() + by;
        self.settle();
        while Instant::now() < end {
            let next = self.leader.next_wake().max(Instant::now() + Duration::from_millis(1));
            // What an agent does takes it a moment.
            let next = if act(self) { next.min(Instant::now() + Duration::from_millis(500)) } else { next };
            let next = next.min(self.beats_at).min(end);
            tokio::time::advance(next.saturating_duration_since(Instant::now())).await;
            if Instant::now() >= self.beats_at {
                self.beat();
            }
            self.settle();
            if self.store.take_death() {
                tokio::time::advance(LEASE).await;
                self.elect_another();
                self.settle();
            }
        }
    }

    /// All agents that are there start what is new, end what is stopped and judge what runs; says whether there was
    /// anything to do.
    pub(crate) fn agents_act(&self) -> bool {
        let mut has_acted = false;
        for alloc in self.allocs() {
            let status = alloc.status.clone().unwrap_or_default();
            if !self.beating.contains(&alloc.spec.node_name) || status.client_status.is_terminal() {
                continue;
            }
            has_acted |= match (alloc.spec.desired_status, status.client_status) {
                (DesiredStatus::Run, ClientStatus::Pending) if !self.has_volumes(&alloc) => false,
                (DesiredStatus::Run, ClientStatus::Pending | ClientStatus::Unknown) => {
                    self.report(&alloc, &json!({ "clientStatus": "running" }));
                    true
                }
                (DesiredStatus::Run, _) => self.judge(&alloc),
                (DesiredStatus::Stop | DesiredStatus::Evict, _) => {
                    self.end(&alloc, ClientStatus::Complete);
                    true
                }
            };
        }
        has_acted
    }

    /// Whether all volumes that an allocation wants are attached for it.
    fn has_volumes(&self, alloc: &Allocation) -> bool {
        let job = self.find::<Job>(&alloc.spec.job_name);
        let groups = job.as_ref().map(|job| &job.spec.groups[..]).unwrap_or_default();
        let group = groups.iter().find(|group| group.name == alloc.spec.group);
        let is_attached = |request: &VolumeRequest| {
            let claims =
                self.find::<CSIVolume>(&request.source).and_then(|volume| volume.status).unwrap_or_default().claims;
            let own = claims.iter().find(|claim| Some(&claim.alloc_id) == alloc.metadata.uid.as_ref());
            own.is_some_and(|claim| claim.attach == AttachState::Attached)
        };
        group.is_none_or(|group| group.volumes.iter().all(is_attached))
    }

    /// The agent of a running service finds it healthy for its deployment, or for none, or not healthy where its
    /// version is sick.
    fn judge(&self, alloc: &Allocation) -> bool {
        let deployment = &alloc.spec.deployment_name;
        let judged = alloc.status.as_ref().and_then(|status| status.health.as_ref());
        let is_service = self.find::<Job>(&alloc.spec.job_name).is_some_and(|job| job.spec.r#type == JobType::Service);
        if !is_service || judged.is_some_and(|health| health.deployment_name == *deployment) {
            return false;
        }
        let healthy = !self.sick_versions.contains(&alloc.spec.job_version);
        let health = json!({ "healthy": healthy, "timestamp": self.clock.now(), "deploymentName": deployment });
        self.report(alloc, &json!({ "health": health }));
        true
    }

    /// The agent of an allocation reports these fields of its status.
    pub(crate) fn report(&self, alloc: &Allocation, status: &Value) {
        let now = self.clock.now();
        let mut status = status.clone();
        status["modifiedAt"] = json!(now);
        status["observedGeneration"] = json!(alloc.metadata.generation);
        if status["clientStatus"] == "running" && status["taskStates"].is_null() {
            status["taskStates"] = json!({ "t": { "state": "running" } });
        }
        self.merge::<Allocation>(&alloc.key(), Part::Status, json!({ "status": status }));
    }

    /// The agent of an allocation reports that it has ended so, and that nothing of it is left.
    pub(crate) fn end(&self, alloc: &Allocation, how: ClientStatus) {
        self.report(alloc, &json!({ "clientStatus": how, "endedAt": self.clock.now() }));
    }

    /// All agents beat, and the leader's Lease is renewed.
    pub(crate) fn beat(&mut self) {
        // Nobody waits for beats where no node is.
        let has_nodes = !self.all::<ClientNode>().is_empty();
        self.beats_at = Instant::now() + if has_nodes { BEAT } else { Duration::from_hours(1) };
        let nodes: Vec<String> = self.beating.iter().map(|node| format!("node-{node}")).collect();
        for node in nodes {
            self.renew(&node, "agent");
        }
        let identity = self.leader.shared.identity.clone();
        self.renew(LEADER_LEASE, &identity);
    }

    fn renew(&self, name: &str, holder: &str) {
        let key = Key::namespaced(drover_api::SYSTEM_NAMESPACE, name);
        let time = format!("{:.6}", self.clock.now());
        let body = json!({ "metadata": { "name": name, "namespace": key.namespace },
            "spec": { "holderIdentity": holder, "renewTime": time } });
        if self.store.read::<Lease>(&key).is_none() {
            now(self.store.unnoticed().create::<Lease>(&serde_json::from_value(body).unwrap())).unwrap();
        } else {
            self.merge::<Lease>(&key, Part::Spec, body);
        }
    }

    /// A node's agent registers it and begins to beat; what the leader wrote meanwhile is forgotten.
    pub(crate) fn register(&mut self, node: &ClientNode) {
        self.join(node);
        self.store.take_writes();
    }

    /// A node's agent registers it and begins to beat.
    pub(crate) fn join(&mut self, node: &ClientNode) {
        self.create(node);
        let status = json!({ "status": node.status });
        self.merge::<ClientNode>(&node.key(), Part::Status, status);
        let name = node.key().name;
        self.renew(&format!("node-{name}"), "agent");
        self.settle();
        self.beating.insert(name);
        self.beat();
        self.settle();
    }

    /// A node falls silent.
    pub(crate) fn silence(&mut self, node: &str) {
        assert!(self.beating.remove(node), "{node} beats");
    }

    /// A silent node beats again.
    pub(crate) fn wake(&mut self, node: &str) {
        self.beating.insert(node.to_owned());
        self.beat();
    }

    /// A person creates an object.
    pub(crate) fn create<K: Object>(&self, object: &K) -> K {
        now(self.store.unnoticed().create(object)).unwrap()
    }

    /// A person, or an agent, changes an object.
    pub(crate) fn merge<K: Object>(&self, key: &Key, part: Part, patch: Value) -> K {
        now(self.store.unnoticed().merge(key, part, &Precondition::default(), patch)).unwrap()
    }

    /// A person applies a job in its namespace.
    pub(crate) fn change_job(&self, name: &str, spec: &Value) {
        self.merge::<Job>(&in_default(name), Part::Spec, json!({ "spec": spec }));
    }

    /// A person deletes an object.
    pub(crate) fn delete<K: Object>(&self, key: &Key) {
        now(self.store.unnoticed().delete::<K>(key, &Precondition::default())).unwrap();
    }

    /// What no owner is left of goes, as the garbage collector has it.
    pub(crate) fn collect_garbage(&self) {
        self.store.collect_garbage();
    }

    /// An object of namespace `default`.
    pub(crate) fn the<K: Object>(&self, name: &str) -> K {
        self.find(name).unwrap_or_else(|| panic!("no {} {name}", K::kind(&())))
    }

    pub(crate) fn find<K: Object>(&self, name: &str) -> Option<K> {
        self.store.read(&in_default(name)).or_else(|| self.store.read(&Key::cluster(name)))
    }

    pub(crate) fn all<K: Object>(&self) -> Vec<K> {
        now(self.store.list(&Selection::default())).unwrap()
    }

    /// All allocations, by name.
    pub(crate) fn allocs(&self) -> Vec<Allocation> {
        self.all()
    }

    /// The allocations of a job, as `g[0] on n1: run running`, sorted.
    pub(crate) fn shown(&self, job: &str) -> Vec<String> {
        let of_job = self.allocs().into_iter().filter(|alloc| alloc.spec.job_name == job);
        let mut shown: Vec<String> = of_job
            .map(|alloc| {
                let client = alloc.status.as_ref().map(|status| status.client_status).unwrap_or_default();
                let spec = &alloc.spec;
                format!(
                    "{}[{}] v{} on {}: {} {client}",
                    spec.group, spec.index, spec.job_version, spec.node_name, spec.desired_status
                )
            })
            .collect();
        shown.sort();
        shown
    }

    /// What people were told, as `Warning Down n1: no heartbeat arrived in time`, in the order of time.
    pub(crate) fn events(&self) -> Vec<String> {
        let mut events: Vec<(Timestamp, String)> = self
            .all::<Event>()
            .into_iter()
            .map(|event| {
                let text = |text: Option<String>| text.unwrap_or_default();
                let about = event.regarding.and_then(|about| about.name);
                let said =
                    format!("{} {} {}: {}", text(event.type_), text(event.reason), text(about), text(event.note));
                (event.event_time.unwrap().0, said)
            })
            .collect();
        events.sort();
        events.into_iter().map(|(_, said)| said).collect()
    }

    /// Writes of the leader since this was asked last, without events, as `create Job default/web`.
    pub(crate) fn writes(&self) -> Vec<String> {
        let writes = self.store.take_writes();
        writes.into_iter().filter(|write| !write.contains(" Event ") && !write.contains(" Lease ")).collect()
    }
}

impl Scene for World {
    fn world(&mut self) -> &mut World {
        self
    }

    async fn live(&mut self, seconds: u64) {
        World::live(self, Duration::from_secs(seconds)).await;
    }
}

/// The key of an object of namespace `default`.
pub(crate) fn in_default(name: &str) -> Key {
    Key::namespaced("default", name)
}

/// The outcome of a future that waits for nothing, as those of the in-memory store.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("it waits for nothing")
}

fn parsed(yaml: &str) -> ControllerConfig {
    ControllerConfig::parse(yaml, std::path::Path::new("test")).unwrap()
}

fn leader(store: &TestStore, clock: &SharedClock, config: &ControllerConfig, n: usize) -> LeaderLoop<TestStore> {
    let rng = fastrand::Rng::with_seed(7 + u64::try_from(n).unwrap());
    let shared = Shared::new(clock.clone(), config.clone(), format!("leader-{n}"), rng, Recorder::default());
    LeaderLoop::new(store.clone(), shared, Duration::from_secs(2))
}

/// An error that a retry may mend.
pub(crate) fn unavailable() -> StoreError {
    StoreError::Unavailable("the API server restarts".to_owned())
}

/// What another writer brings about who was first.
pub(crate) fn conflict() -> StoreError {
    StoreError::Conflict("somebody else wrote".to_owned())
}
