//! One term of a leader: a loop that takes in what the watches and its own writes say, decides, and starts writes.
//!
//! All state is owned by the loop, so that there are no locks. Writes run beside it and come back as [`Done`].

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use drover_api::job::EvalTrigger;
use drover_api::{Allocation, CSIVolume, ClientNode, Deployment, Job, JobVersion, label};
use drover_core::broker::blocked::Blocked;
use drover_core::broker::queue::Broker;
use drover_core::ids::{AllocKey, JobKey, NodeName, ObjectKey};
use drover_core::model::DEFAULT_PRIORITY;
use drover_core::node::drain::Leaving;
use drover_core::node::heartbeat::{Allowed, Ledger};
use drover_core::scheduler;
use drover_core::snapshot::ClusterView;
use drover_core::volume::turn::Caller;
use futures::stream::{BoxStream, select_all};
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::apply::Written;
use crate::cache::{Cache, Seen};
use crate::calm::Line;
use crate::config::ControllerConfig;
use crate::deployment::{self, Look};
use crate::family::Families;
use crate::leader::Mandate;
use crate::node::NodeKnowledge;
use crate::numbers::Numbers;
use crate::periodic::Launches;
use crate::prepare::Prepared;
use crate::scheduler_config::SCHEDULER_CONFIG;
use crate::status::Knowledge;
use crate::volume::Volumes;
use drover_clock::SharedClock;
use drover_store::convert;
use drover_store::events::{self, Happening};
use drover_store::{Change, Object, Selection, Store, StoreError};

/// Changes that are taken in before the next decision, so that a burst is decided on once.
const BURST: usize = 1024;
/// Pause before something that failed is tried again.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// What came in.
pub(super) enum Input {
    Job(Change<Job>),
    Version(Change<JobVersion>),
    Allocation(Change<Allocation>),
    Node(Change<ClientNode>),
    Lease(Change<Lease>),
    Namespace(Change<Namespace>),
    Deployment(Change<Deployment>),
    Volume(Change<CSIVolume>),
    Config(Change<ConfigMap>),
    Attachment(Change<VolumeAttachment>),
    Driver(Change<CSIDriver>),
}

/// A write that ended.
pub(super) enum Done {
    Prepared(JobKey, EvalTrigger, Box<Prepared>),
    Applied(JobKey, Vec<AllocKey>, Written),
    JobStatus(JobKey, Box<Result<Job, StoreError>>),
    VersionSought(JobKey, i64, Box<Result<Option<JobVersion>, StoreError>>),
    NodeStatus(NodeName, Box<Result<ClientNode, StoreError>>),
    DeploymentStatus(ObjectKey, bool, Box<Result<Deployment, StoreError>>),
    DeploymentActed(ObjectKey, Box<deployment::Acted>),
    Launched(JobKey, Timestamp, Box<Result<Job, StoreError>>),
    Settled(AllocKey, Box<Result<Option<Allocation>, StoreError>>),
    JobFreed(JobKey, Box<Result<Option<Job>, StoreError>>),
    Ttl(Box<Result<ConfigMap, StoreError>>),
    Marked(AllocKey, Box<Result<Allocation, StoreError>>),
    VolumeStatus(ObjectKey, Box<Result<CSIVolume, StoreError>>),
    VolumeKept(ObjectKey, Box<Result<Option<CSIVolume>, StoreError>>),
    NodeSpec(NodeName, Box<Result<ClientNode, StoreError>>),
    AttachmentMade(Caller, String, Box<Result<VolumeAttachment, StoreError>>),
    AttachmentDeleted(Option<Caller>, String, Result<(), StoreError>),
    Other(&'static str, Result<(), StoreError>),
}

/// One term of a leader.
pub(super) struct Term<S> {
    pub(super) store: S,
    pub(super) clock: SharedClock,
    /// What is in effect.
    pub(super) config: ControllerConfig,
    /// What the process was started with.
    pub(super) file_config: ControllerConfig,
    pub(super) configs: Cache<ConfigMap>,
    /// When it is looked for garbage next.
    pub(super) garbage_wake: Option<WakeId>,
    pub(super) identity: String,
    pub(super) began: Instant,
    pub(super) jobs: Cache<Job>,
    pub(super) versions: Cache<JobVersion>,
    pub(super) allocs: Cache<Allocation>,
    pub(super) nodes: Cache<ClientNode>,
    pub(super) leases: Cache<Lease>,
    pub(super) namespaces: Cache<Namespace>,
    pub(super) deployments: Cache<Deployment>,
    pub(super) volumes: Cache<CSIVolume>,
    /// Those of drover. Nothing but volumes of drivers of the cluster waits for them, and for the drivers.
    pub(super) attachments: Cache<VolumeAttachment>,
    pub(super) drivers: Cache<CSIDriver>,
    /// Who holds them, and what is done for it.
    pub(super) claims: Volumes,
    pub(super) view: ClusterView,
    pub(super) broker: Broker,
    pub(super) blocked: Blocked,
    pub(super) known: BTreeMap<JobKey, Knowledge>,
    /// Jobs that were made from others.
    pub(super) families: Families,
    /// The launches of periodic jobs.
    pub(super) launches: BTreeMap<JobKey, Launches>,
    pub(super) known_nodes: HashMap<NodeName, NodeKnowledge>,
    pub(super) ledger: Ledger,
    /// Nodes that were heard of in this term.
    pub(super) heard: HashSet<NodeName>,
    /// Silent nodes that are marked later, with what is told of their pool.
    pub(super) held: BTreeMap<NodeName, Arc<str>>,
    /// Nodes that are late beside nodes that were marked.
    pub(super) suspects: BTreeSet<NodeName>,
    pub(super) published_ttl: Option<Duration>,
    /// The drains under way.
    pub(super) drains: BTreeMap<NodeName, Leaving>,
    /// Whether what they need is to be looked at now.
    pub(super) is_drain_due: bool,
    /// When that is planned for.
    pub(super) drains_wake: Option<Instant>,
    pub(super) dirty_jobs: BTreeSet<JobKey>,
    pub(super) dirty_nodes: BTreeSet<NodeName>,
    /// Nodes whose status differs in what nobody waits for.
    pub(super) calm_nodes: Line,
    /// When one of them is written next.
    pub(super) calm_wake: Option<WakeId>,
    /// Plans that are being written.
    pub(super) n_plans: usize,
    pub(super) dirty_deployments: BTreeSet<ObjectKey>,
    pub(super) known_deployments: HashMap<ObjectKey, deployment::Knowledge>,
    /// Deployments that are committed together soon.
    pub(super) window: BTreeSet<ObjectKey>,
    /// Names of the versions of each job.
    pub(super) version_keys: HashMap<JobKey, BTreeSet<drover_store::Key>>,
    /// The newest write of an allocation that is known.
    pub(super) view_index: u64,
    /// Things to look at again at a time.
    pub(super) wakes: BTreeMap<WakeId, Wake>,
    pub(super) n_wakes: u64,
    pub(super) writes: JoinSet<Done>,
    pub(super) rng: fastrand::Rng,
    pub(super) numbers: Numbers,
    has_begun: bool,
}

/// Names a timer: its time, and a number that no other one has.
pub(super) type WakeId = (Instant, u64);

/// What to look at again.
#[derive(Clone, Debug)]
pub(super) enum Wake {
    Evaluate(JobKey, EvalTrigger),
    JobStatus(JobKey),
    Launch(JobKey),
    NodeStatus(NodeName),
    CalmNodes,
    Deployment(ObjectKey),
    DeploymentBatch(ObjectKey),
    DeploymentWindow,
    Settle(AllocKey),
    Volume(ObjectKey),
    Attachment(String),
    ClaimGc,
    FreeJob(JobKey),
    NodeGone(NodeName),
    NodeSilent(NodeName),
    Drain(NodeName),
    Drains,
    Garbage,
    Ttl,
}

/// What a turn of the loop is about.
enum News {
    Done(Result<Done, tokio::task::JoinError>),
    Input(Input),
    /// Something is due.
    Time,
}

impl<S: Store> Term<S> {
    pub(super) fn new(
        store: S,
        clock: SharedClock,
        config: ControllerConfig,
        identity: String,
        renew_period: Duration,
        rng: fastrand::Rng,
        numbers: Numbers,
    ) -> Self {
        let allowed = Allowed { ttl: config.heartbeat.min_ttl(), grace: config.heartbeat.grace() };
        let mut view = ClusterView::default();
        view.set_settings(config.scheduler.clone());
        Self {
            store,
            clock,
            file_config: config.clone(),
            config,
            configs: Cache::default(),
            garbage_wake: None,
            identity,
            began: Instant::now(),
            jobs: Cache::default(),
            versions: Cache::default(),
            allocs: Cache::default(),
            nodes: Cache::default(),
            leases: Cache::default(),
            namespaces: Cache::default(),
            deployments: Cache::default(),
            volumes: Cache::default(),
            attachments: Cache::default(),
            drivers: Cache::default(),
            claims: Volumes::default(),
            view,
            broker: Broker::default(),
            blocked: Blocked::default(),
            known: BTreeMap::new(),
            families: Families::default(),
            launches: BTreeMap::new(),
            known_nodes: HashMap::new(),
            ledger: Ledger::new(allowed, renew_period * 2),
            heard: HashSet::new(),
            held: BTreeMap::new(),
            suspects: BTreeSet::new(),
            published_ttl: None,
            drains: BTreeMap::new(),
            is_drain_due: false,
            drains_wake: None,
            dirty_jobs: BTreeSet::new(),
            dirty_nodes: BTreeSet::new(),
            calm_nodes: Line::default(),
            calm_wake: None,
            n_plans: 0,
            dirty_deployments: BTreeSet::new(),
            known_deployments: HashMap::new(),
            window: BTreeSet::new(),
            version_keys: HashMap::new(),
            view_index: 0,
            wakes: BTreeMap::new(),
            n_wakes: 0,
            writes: JoinSet::new(),
            rng,
            numbers,
            has_begun: false,
        }
    }

    /// Leads until `over`. Writes under way are then dropped: each is safe to lose. Nothing begins while the renew deadline has passed,
    /// even where this process stood still and does not know yet that another one leads.
    pub(super) async fn run(mut self, mut mandate: Mandate, over: &CancellationToken) {
        let mut inputs = self.inputs();
        while !over.is_cancelled() {
            let wake_at = self.next_wake();
            let news = tokio::select! {
                biased;
                () = over.cancelled() => break,
                Some(done) = self.writes.join_next(), if !self.writes.is_empty() => News::Done(done),
                Some(input) = inputs.next() => News::Input(input),
                () = tokio::time::sleep_until(wake_at) => News::Time,
            };
            while !mandate.holds() && !over.is_cancelled() {
                tokio::select! {
                    biased;
                    () = over.cancelled() => {}
                    () = mandate.renewed() => {}
                }
            }
            if over.is_cancelled() {
                break;
            }
            match news {
                News::Done(done) => self.take_done(done),
                News::Input(input) => self.take(input),
                News::Time => {}
            }
            for _ in 0..BURST {
                let Some(Some(input)) = inputs.next().now_or_never() else { break };
                self.take(input);
            }
            self.decide();
        }
        self.numbers.end();
    }

    fn inputs(&self) -> futures::stream::SelectAll<BoxStream<'static, Input>> {
        let all = Selection::default;
        let own = Selection { namespace: Some(self.config.namespace.clone()), ..Selection::default() };
        let config = Selection { fields: Some(format!("metadata.name={}", SCHEDULER_CONFIG.0)), ..own.clone() };
        let ours = Selection { labels: Some(format!("{}={}", label::MANAGED_BY, label::DROVER)), ..all() };
        select_all([
            self.store.watch::<Job>(all()).map(Input::Job).boxed(),
            self.store.watch::<JobVersion>(all()).map(Input::Version).boxed(),
            self.store.watch::<Allocation>(all()).map(Input::Allocation).boxed(),
            self.store.watch::<ClientNode>(all()).map(Input::Node).boxed(),
            self.store.watch::<Lease>(own).map(Input::Lease).boxed(),
            self.store.watch::<Namespace>(all()).map(Input::Namespace).boxed(),
            self.store.watch::<Deployment>(all()).map(Input::Deployment).boxed(),
            self.store.watch::<CSIVolume>(all()).map(Input::Volume).boxed(),
            self.store.watch::<ConfigMap>(config).map(Input::Config).boxed(),
            self.store.watch::<VolumeAttachment>(ours).map(Input::Attachment).boxed(),
            self.store.watch::<CSIDriver>(all()).map(Input::Driver).boxed(),
        ])
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Job(change) => {
                for seen in self.jobs.take(change) {
                    self.on_job(seen);
                }
            }
            Input::Version(change) => {
                for seen in self.versions.take(change) {
                    self.on_version(seen);
                }
            }
            Input::Allocation(change) => {
                for seen in self.allocs.take(change) {
                    self.on_alloc(seen);
                }
            }
            Input::Node(change) => {
                for seen in self.nodes.take(change) {
                    self.on_node(seen);
                }
            }
            Input::Lease(change) => self.on_lease_change(change),
            Input::Namespace(change) => {
                for seen in self.namespaces.take(change) {
                    self.on_namespace(&seen);
                }
            }
            Input::Deployment(change) => {
                for seen in self.deployments.take(change) {
                    self.on_deployment(seen);
                }
            }
            Input::Config(change) => {
                for seen in self.configs.take(change) {
                    self.on_config(&seen);
                }
            }
            Input::Volume(change) => {
                for seen in self.volumes.take(change) {
                    self.on_volume(seen);
                }
            }
            Input::Attachment(change) => self.on_attachment_change(change),
            Input::Driver(change) => self.on_driver_change(change),
        }
    }

    fn take_done(&mut self, done: Result<Done, tokio::task::JoinError>) {
        if let Ok(done) = &done {
            self.numbers.ended(done);
        }
        match done {
            Ok(Done::Prepared(job, trigger, prepared)) => self.on_prepared(&job, trigger, prepared),
            Ok(Done::Applied(job, created, written)) => self.on_applied(&job, created, written),
            Ok(Done::JobStatus(job, result)) => self.on_job_status(&job, *result),
            Ok(Done::VersionSought(job, number, result)) => self.on_version_sought(&job, number, *result),
            Ok(Done::NodeStatus(node, result)) => self.on_node_status(&node, *result),
            Ok(Done::DeploymentStatus(key, evaluate, result)) => self.on_deployment_status(&key, evaluate, *result),
            Ok(Done::DeploymentActed(key, acted)) => self.on_deployment_acted(&key, *acted),
            Ok(Done::Launched(job, at, result)) => self.on_launched(&job, at, *result),
            Ok(Done::Settled(alloc, result)) => self.on_settled(&alloc, *result),
            Ok(Done::JobFreed(job, result)) => self.on_job_freed(&job, *result),
            Ok(Done::Ttl(result)) => self.on_ttl_published(*result),
            Ok(Done::Marked(alloc, result)) => self.on_marked(&alloc, *result),
            Ok(Done::VolumeStatus(volume, result)) => self.on_volume_status(&volume, *result),
            Ok(Done::VolumeKept(volume, result)) => self.on_volume_kept(&volume, *result),
            Ok(Done::NodeSpec(node, result)) => self.on_node_spec(&node, *result),
            Ok(Done::AttachmentMade(caller, name, result)) => self.on_attachment_made(&caller, &name, *result),
            Ok(Done::AttachmentDeleted(caller, name, result)) => {
                self.on_attachment_deleted(caller.as_ref(), &name, result);
            }
            Ok(Done::Other(_, Ok(()) | Err(StoreError::AlreadyExists(_) | StoreError::NotFound(_)))) => {}
            Ok(Done::Other(what, Err(error))) => tracing::warn!(what, %error, "a write did not happen"),
            Err(error) => tracing::error!(%error, "a write ended by a panic"),
        }
    }

    /// Everything that is decided after new facts: the begin of the term, due evaluations, statuses.
    fn decide(&mut self) {
        if !self.is_synced() {
            return;
        }
        if !self.has_begun {
            self.has_begun = true;
            self.begin();
        }
        self.wake_up();
        let view = &self.view;
        self.broker.release_due(self.clock.now(), |job| {
            view.job(job).map_or(DEFAULT_PRIORITY, |job| job.definition.spec.priority)
        });
        self.advance_drains();
        self.advance_volumes();
        while let Some(next) = self.broker.pop(self.elapsed()) {
            let began = self.begin_look();
            self.count_turn(&next);
            self.evaluate(&next);
            self.broker.rest(&next.job, began.at.elapsed(), self.elapsed());
            self.count_evaluation(&next.job, &began);
        }
        for job in std::mem::take(&mut self.dirty_jobs) {
            let began = self.begin_look();
            self.refresh_job(&job);
            self.count_look("job-status", &began);
        }
        for node in std::mem::take(&mut self.dirty_nodes) {
            let began = self.begin_look();
            self.refresh_node(&node);
            self.count_look("node", &began);
        }
        self.write_calm_nodes();
        for deployment in std::mem::take(&mut self.dirty_deployments) {
            let began = self.begin_look();
            self.refresh_deployment(&deployment, Look::Change);
            self.count_look("deployment", &began);
        }
        self.count_waiting();
    }

    fn is_synced(&self) -> bool {
        self.jobs.is_synced()
            && self.versions.is_synced()
            && self.allocs.is_synced()
            && self.nodes.is_synced()
            && self.leases.is_synced()
            && self.namespaces.is_synced()
            && self.deployments.is_synced()
            && self.volumes.is_synced()
            && self.configs.is_synced()
    }

    /// Whether the caches are complete and decisions are made.
    pub(super) const fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// The first look at everything: each job is evaluated once, and what waits for a time waits again.
    fn begin(&mut self) {
        self.view.set_settings(self.config.scheduler.clone());
        tracing::info!(
            jobs = self.jobs.len(),
            allocations = self.allocs.len(),
            nodes = self.nodes.len(),
            "caches are complete"
        );
        let jobs: BTreeSet<JobKey> = self
            .jobs
            .values()
            .map(|job| convert::object_key(&job.metadata))
            .chain(self.view.jobs_of_allocs().cloned())
            .collect();
        for job in jobs {
            self.adopt_knowledge(&job);
            self.enqueue(&job, EvalTrigger::JobRegister);
        }
        let waiting: Vec<_> = self
            .allocs
            .values()
            .filter_map(|alloc| {
                let namespace = alloc.metadata.namespace.clone().unwrap_or_default();
                Some((JobKey::new(namespace, alloc.spec.job_name.clone()), alloc.spec.follow_up.clone()?))
            })
            .collect();
        for (job, follow_up) in waiting {
            self.broker.delay(&job, &follow_up);
        }
        let mut allocs: Vec<AllocKey> =
            self.allocs.values().map(|alloc| convert::object_key(&alloc.metadata)).collect();
        allocs.sort();
        for alloc in allocs {
            self.settle(&alloc);
        }
        self.look_for_attachments_for_nobody();
        self.publish_ttl();
        self.plan_garbage();
        self.plan_claim_gc();
    }

    /// Queues an evaluation of a job, if the scheduler of its type has a use for the trigger.
    pub(super) fn enqueue(&mut self, job: &JobKey, trigger: EvalTrigger) {
        let known = self.view.job(job).map(|job| &job.definition);
        if known.is_some_and(|known| !scheduler::accepts(known.job_type(), trigger)) {
            return;
        }
        let priority = known.map_or(DEFAULT_PRIORITY, |known| known.spec.priority);
        let rollout = self.view.latest_deployment(job).filter(|_| trigger == EvalTrigger::DeploymentWatcher);
        let priority = rollout.map_or(priority, |rollout| rollout.priority(priority));
        self.numbers.asked(job);
        self.broker.enqueue(job, trigger, priority);
    }

    /// Looks at something again after a while.
    pub(super) fn wake_in(&mut self, after: Duration, wake: Wake) {
        self.wake_at(Instant::now() + after, wake);
    }

    /// Looks at something again at a time.
    pub(super) fn wake_at(&mut self, at: Instant, wake: Wake) -> WakeId {
        self.n_wakes += 1;
        self.wakes.insert((at, self.n_wakes), wake);
        (at, self.n_wakes)
    }

    fn wake_up(&mut self) {
        let now = Instant::now();
        while let Some(entry) = self.wakes.first_entry() {
            if entry.key().0 > now {
                break;
            }
            match entry.remove() {
                Wake::Evaluate(job, trigger) => self.enqueue(&job, trigger),
                Wake::JobStatus(job) => drop(self.dirty_jobs.insert(job)),
                Wake::Launch(job) => self.arm_launches(&job),
                Wake::NodeStatus(node) => drop(self.dirty_nodes.insert(node)),
                Wake::CalmNodes => self.calm_wake = None,
                Wake::Deployment(deployment) => drop(self.dirty_deployments.insert(deployment)),
                Wake::DeploymentBatch(deployment) => self.join_window(deployment),
                Wake::DeploymentWindow => self.commit_window(),
                Wake::Settle(alloc) => self.settle(&alloc),
                Wake::Volume(volume) => self.look_at_volume_again(&volume),
                Wake::Attachment(name) => self.delete_if_for_nobody(&name),
                Wake::ClaimGc => self.collect_claims(),
                Wake::FreeJob(job) => self.free_job(&job),
                Wake::NodeGone(node) => self.settle_node(&node),
                Wake::NodeSilent(node) => self.judge_silent(&node),
                Wake::Garbage => self.collect_garbage(),
                Wake::Drain(node) => self.retry_drain(&node),
                Wake::Drains => self.is_drain_due = true,
                Wake::Ttl => self.publish_ttl(),
            }
        }
    }

    fn next_wake(&self) -> Instant {
        let far = Instant::now() + Duration::from_hours(1);
        let timer = self.wakes.keys().next().map_or(far, |(at, _)| *at);
        let due = self.broker.next_due().map_or(far, |at| self.instant_of(at));
        let rested = self.broker.rested_at().map_or(far, |at| self.began + at);
        let volumes = self.volumes_wake_at().unwrap_or(far);
        timer.min(due).min(rested).min(volumes)
    }

    /// The moment of a time of day on the monotonic clock, as far as can be told now.
    pub(super) fn instant_of(&self, at: Timestamp) -> Instant {
        let wait = at.duration_since(self.clock.now());
        Instant::now() + Duration::try_from(wait).unwrap_or(Duration::ZERO)
    }

    /// Time since the term began, on the monotonic clock.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Reports a happening to an object. Losing one is no loss of state: it is only logged.
    pub(super) fn report<K: Object>(&mut self, about: &K, happening: &Happening<'_>) {
        let event = events::event(about, "controller", &self.identity, happening, self.clock.now());
        let store = self.store.clone();
        self.writes.spawn(async move { Done::Other("event", store.create(&event).await.map(|_| ())) });
    }
}

/// The object of a change that is there, with the one before it; none when it is gone.
pub(super) fn there<K>(seen: &Seen<K>) -> Option<&std::sync::Arc<K>> {
    match seen {
        Seen::Now(object, _) => Some(object),
        Seen::Gone(_) => None,
    }
}
