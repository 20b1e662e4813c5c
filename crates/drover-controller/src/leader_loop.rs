//! The loop of a leader: takes in what the watches and its own writes say, routes it to the components that it
//! concerns, and has them do what is due. One task owns all state, so that there are no locks.
//!
//! Must never decide: who gets what is all that it knows.

use std::collections::BTreeSet;
use std::time::Duration;

use drover_api::job::EvalTrigger;
use drover_api::{Allocation, CSIVolume, ClientNode, Deployment, HostVolume, Job, JobVersion, label};
use drover_core::ids::{AllocKey, JobKey};
use drover_core::model::DEFAULT_PRIORITY;
use drover_store::{Change, Selection, Store, StoreError, convert};
use futures::stream::{BoxStream, SelectAll, select_all};
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, VolumeAttachment};
use tokio::task::JoinError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::actions::Done;
use crate::allocations;
use crate::cache::Observed;
use crate::cluster_config::{ClusterConfig, SCHEDULER_CONFIG};
use crate::deployments::{Deployments, Pass};
use crate::finalizers;
use crate::garbage::GarbageCollector;
use crate::host_volumes::HostVolumes;
use crate::jobs::{Jobs, PeriodicJobs};
use crate::leader::LeaseGuard;
use crate::nodes::Nodes;
use crate::services::Services;
use crate::shared::{Notice, Shared};
use crate::timers::Wake;
use crate::volumes::Volumes;
use crate::writer::Writer;

/// Changes that are taken in before the next decision, so that a burst is decided on once.
const BURST: usize = 1024;
/// Longest wait without a look at what is due.
const LONGEST_WAIT: Duration = Duration::from_hours(1);

/// What came in by a watch.
pub(crate) enum Input {
    Job(Change<Job>),
    Version(Change<JobVersion>),
    Allocation(Change<Allocation>),
    Node(Change<ClientNode>),
    Lease(Change<Lease>),
    Namespace(Change<Namespace>),
    Deployment(Change<Deployment>),
    Volume(Change<CSIVolume>),
    HostVolume(Change<HostVolume>),
    Config(Change<ConfigMap>),
    Attachment(Change<VolumeAttachment>),
    Driver(Change<CSIDriver>),
    CsiNode(Change<CSINode>),
    Service(Change<Service>),
    Slice(Change<EndpointSlice>),
    CoreNode(Change<Node>),
}

/// What a turn of the loop is about.
enum LoopTurn {
    Done(Result<Done, JoinError>),
    Input(Input),
    /// Something is due.
    Time,
}

/// One term of a leader.
#[derive(Debug)]
pub(crate) struct LeaderLoop<S> {
    store: S,
    writer: Writer<S>,
    pub(crate) shared: Shared,
    jobs: Jobs,
    periodic_jobs: PeriodicJobs,
    deployments: Deployments,
    nodes: Nodes,
    volumes: Volumes,
    host_volumes: HostVolumes,
    services: Services,
    garbage: GarbageCollector,
    cluster_config: ClusterConfig,
}

impl<S: Store> LeaderLoop<S> {
    /// A leader that has seen nothing yet, and renews its Lease so often.
    pub(crate) fn new(store: S, shared: Shared, renew_period: Duration) -> Self {
        Self {
            writer: Writer::new(store.clone()),
            store,
            jobs: Jobs::default(),
            periodic_jobs: PeriodicJobs::default(),
            deployments: Deployments::default(),
            nodes: Nodes::new(&shared.config, renew_period),
            volumes: Volumes::default(),
            host_volumes: HostVolumes::default(),
            services: Services::default(),
            garbage: GarbageCollector::default(),
            cluster_config: ClusterConfig::new(shared.config.clone()),
            shared,
        }
    }

    /// Leads until `over`. Writes under way are then dropped: each is safe to lose. Nothing begins while the renew
    /// deadline has passed, even where this process stood still and does not know yet that another one leads.
    pub(crate) async fn run(mut self, mut guard: LeaseGuard, over: &CancellationToken) {
        let mut inputs = self.inputs();
        while !over.is_cancelled() {
            let wake_at = self.next_wake();
            let has_room = self.writer.has_room();
            let turn = tokio::select! {
                biased;
                () = over.cancelled() => break,
                Some(done) = self.writer.ended(), if !self.writer.is_idle() => LoopTurn::Done(done),
                Some(input) = inputs.next(), if has_room => LoopTurn::Input(input),
                () = tokio::time::sleep_until(wake_at), if has_room => LoopTurn::Time,
            };
            while !guard.holds() && !over.is_cancelled() {
                tokio::select! {
                    biased;
                    () = over.cancelled() => {}
                    () = guard.renewed() => {}
                }
            }
            if over.is_cancelled() {
                break;
            }
            match turn {
                LoopTurn::Done(done) => self.take_done(done),
                LoopTurn::Input(input) => self.take(input),
                LoopTurn::Time => {}
            }
            for _ in 0..BURST {
                if !self.writer.has_room() {
                    break;
                }
                let Some(Some(input)) = inputs.next().now_or_never() else { break };
                self.take(input);
            }
            self.decide();
            self.begin_actions();
        }
        self.shared.recorder.end();
    }

    pub(crate) fn inputs(&self) -> SelectAll<BoxStream<'static, Input>> {
        let all = Selection::default;
        let own = Selection { namespace: Some(self.shared.config.namespace.clone()), ..Selection::default() };
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
            self.store.watch::<HostVolume>(all()).map(Input::HostVolume).boxed(),
            self.store.watch::<ConfigMap>(config).map(Input::Config).boxed(),
            self.store.watch::<VolumeAttachment>(ours.clone()).map(Input::Attachment).boxed(),
            self.store.watch::<CSIDriver>(all()).map(Input::Driver).boxed(),
            self.store.watch::<CSINode>(all()).map(Input::CsiNode).boxed(),
            self.store.watch::<Service>(ours.clone()).map(Input::Service).boxed(),
            self.store.watch::<EndpointSlice>(ours).map(Input::Slice).boxed(),
            self.store.watch::<Node>(all()).map(Input::CoreNode).boxed(),
        ])
    }

    /// Takes in what a watch says: the caches first, then the components.
    pub(crate) fn take(&mut self, input: Input) {
        let Self { shared, .. } = self;
        match input {
            Input::Job(change) => {
                for seen in shared.caches.jobs.take(change) {
                    self.route(Notice::Job(seen));
                }
            }
            Input::Version(change) => {
                for seen in shared.caches.versions.take(change) {
                    self.route(Notice::Version(seen));
                }
            }
            Input::Allocation(change) => {
                for seen in shared.caches.allocs.take(change) {
                    self.route(Notice::Allocation(seen));
                }
            }
            Input::Node(change) => {
                for seen in shared.caches.nodes.take(change) {
                    self.route(Notice::Node(seen));
                }
            }
            Input::Deployment(change) => {
                for seen in shared.caches.deployments.take(change) {
                    self.route(Notice::Deployment(seen));
                }
            }
            Input::Volume(change) => {
                for seen in shared.caches.volumes.take(change) {
                    self.volumes.on_volume(&mut self.shared, seen);
                }
            }
            Input::HostVolume(change) => {
                for seen in shared.caches.host_volumes.take(change) {
                    HostVolumes::on_change(&mut self.shared, &seen);
                }
            }
            Input::Namespace(change) => {
                for seen in shared.caches.namespaces.take(change) {
                    Jobs::on_namespace(&mut self.shared, &seen);
                }
            }
            Input::Config(change) => {
                for seen in shared.caches.configs.take(change) {
                    self.on_config(&seen);
                }
            }
            Input::Lease(change) => self.nodes.on_lease_change(shared, change),
            Input::Attachment(change) => self.volumes.on_attachment_change(shared, change),
            Input::Driver(change) => self.volumes.on_driver_change(shared, change),
            Input::CsiNode(change) => Nodes::on_csi_node_change(shared, change),
            Input::Service(change) => self.services.on_service_change(shared, change),
            Input::Slice(change) => self.services.on_slice_change(shared, change),
            Input::CoreNode(change) => Services::on_core_node_change(shared, change),
        }
        self.route_notices();
    }

    fn on_config(&mut self, seen: &Observed<ConfigMap>) {
        let change = self.cluster_config.on_change(&mut self.shared, seen);
        if !change.is_taken_over || !self.shared.has_begun {
            return;
        }
        self.nodes.publish_ttl(&mut self.shared);
        if change.garbage {
            self.garbage.plan(&mut self.shared);
        }
        if change.scheduler {
            self.jobs.on_settings(&mut self.shared);
        }
    }

    /// Tells the components what others of them found out, until there is nothing more to tell.
    fn route_notices(&mut self) {
        while let Some(notice) = self.shared.next_notice() {
            self.route(notice);
        }
    }

    /// Tells each component that it concerns, in an order in which each finds what it needs.
    fn route(&mut self, notice: Notice) {
        let shared = &mut self.shared;
        match notice {
            Notice::Job(seen) => {
                let (Observed::Now(object, _) | Observed::Gone(object)) = &seen;
                let job = convert::object_key(&object.metadata);
                if matches!(seen, Observed::Gone(_)) {
                    self.volumes.forget_plugin_job(&job);
                }
                self.jobs.on_change(shared, seen);
                HostVolumes::on_job(shared, &job);
            }
            Notice::Version(seen) => {
                if let Some(job) = self.jobs.on_version(shared, &seen) {
                    HostVolumes::on_job(shared, &job);
                    self.volumes.note_claims_of(shared, &job);
                    Nodes::review_plugins_of_job(shared, &job);
                    Services::on_versions_of(shared, &job);
                }
            }
            Notice::Allocation(seen) => self.route_allocation(&seen),
            Notice::Node(seen) => {
                let change = self.nodes.on_change(shared, seen);
                self.volumes.on_node(shared, &change);
                HostVolumes::on_node(shared, &change);
            }
            Notice::Deployment(seen) => self.deployments.on_change(shared, seen),
            Notice::Evaluated(job) => self.deployments.on_evaluated(shared, &job),
            Notice::Services(job, condition) => self.jobs.on_services(shared, &job, condition),
            Notice::Scheduled(job) => self.periodic_jobs.arm(shared, &job),
            Notice::Unscheduled(job) => self.periodic_jobs.disarm(shared, &job),
        }
    }

    fn route_allocation(&mut self, seen: &Observed<Allocation>) {
        let shared = &mut self.shared;
        if let Observed::Gone(object) = seen {
            // What it held, and ran, is known as long as it is in the view.
            let key = convert::object_key(&object.metadata);
            Nodes::review_plugins_of(shared, &key);
            self.volumes.drop_claims(shared, &key);
        }
        let consequences = allocations::on_change(shared, seen, |node| self.nodes.is_draining(node));
        if let Observed::Now(object, _) = seen {
            if consequences.has_ended || matches!(seen, Observed::Now(_, None)) {
                Nodes::review_plugins_of(shared, &convert::object_key(&object.metadata));
            }
            self.volumes.on_allocation(shared, object, &consequences);
            self.nodes.on_allocation(shared, object, &consequences);
        }
        HostVolumes::on_allocation(shared, seen);
        self.services.on_allocation(shared, seen);
    }

    pub(crate) fn take_done(&mut self, done: Result<Done, JoinError>) {
        let shared = &mut self.shared;
        if let Ok(done) = &done {
            shared.recorder.ended(done);
        }
        match done {
            Ok(Done::Prepared(job, trigger, prepared)) => Jobs::on_prepared(shared, &job, trigger, prepared),
            Ok(Done::Applied(job, created, written)) => self.jobs.on_applied(shared, &job, created, written),
            Ok(Done::JobStatus(job, result)) => self.jobs.on_job_status(shared, &job, *result),
            Ok(Done::VersionFetched(job, number, result)) => {
                self.jobs.on_version_fetched(shared, &job, number, *result);
            }
            Ok(Done::JobFreed(job, result)) => Jobs::on_job_freed(shared, &job, *result),
            Ok(Done::Launched(job, at, result)) => self.periodic_jobs.on_launched(shared, &job, at, *result),
            Ok(Done::NodeStatus(node, result)) => self.nodes.on_node_status(shared, &node, *result),
            Ok(Done::NodeSpec(node, result)) => Nodes::on_node_spec(shared, &node, *result),
            Ok(Done::Marked(alloc, result)) => self.nodes.on_marked(shared, &alloc, *result),
            Ok(Done::Ttl(result)) => self.nodes.on_ttl_published(shared, *result),
            Ok(Done::DeploymentStatus(key, evaluate, result)) => {
                self.deployments.on_status(shared, &key, evaluate, *result);
            }
            Ok(Done::DeploymentActed(key, acted)) => self.deployments.on_acted(shared, &key, *acted),
            Ok(Done::Settled(alloc, result)) => allocations::on_settled(shared, &alloc, *result),
            Ok(Done::VolumeStatus(volume, result)) => self.volumes.on_volume_status(shared, &volume, *result),
            Ok(Done::VolumeSpec(volume, result)) => self.volumes.on_volume_spec(shared, &volume, *result),
            Ok(Done::HostVolume(volume, result)) => self.host_volumes.on_written(shared, &volume, *result),
            Ok(Done::AttachmentMade(caller, name, result)) => {
                self.volumes.on_attachment_made(shared, &caller, &name, *result);
            }
            Ok(Done::AttachmentDeleted(caller, name, result)) => {
                self.volumes.on_attachment_deleted(shared, caller.as_ref(), &name, result);
            }
            Ok(Done::Endpoints(alloc, slice, result)) => self.services.on_written(shared, &alloc, &slice, *result),
            Ok(Done::Other(_, Ok(()) | Err(StoreError::AlreadyExists(_) | StoreError::NotFound(_)))) => {}
            Ok(Done::Other(what, Err(error))) => tracing::warn!(what, %error, "a write did not happen"),
            Err(error) => tracing::error!(%error, "a write ended by a panic"),
        }
        self.route_notices();
    }

    /// Everything that is decided after new facts: the begin of the term, due evaluations, statuses.
    pub(crate) fn decide(&mut self) {
        if !self.shared.caches.are_synced() || !(self.shared.has_begun || self.shared.caches.have_asked_for_drivers()) {
            return;
        }
        if !self.shared.has_begun {
            self.shared.has_begun = true;
            self.begin();
        }
        self.wake_up();
        let view = &self.shared.view;
        self.shared.evaluations.broker.release_due(self.shared.clock.now(), |job| {
            view.job(job).map_or(DEFAULT_PRIORITY, |job| job.definition.spec.priority)
        });
        self.nodes.advance_drains(&mut self.shared);
        self.volumes.advance(&mut self.shared);
        self.route_notices();
        while let Some(next) = self.shared.evaluations.broker.pop(self.shared.elapsed()) {
            let began = self.shared.begin_look();
            self.shared.count_turn(&next);
            self.jobs.evaluate(&mut self.shared, &next);
            self.route_notices();
            let elapsed = self.shared.elapsed();
            self.shared.evaluations.broker.rest(&next.job, began.at.elapsed(), elapsed);
            self.shared.count_evaluation(&next.job, &began);
        }
        self.refresh();
        self.shared.count_waiting(&self.volumes);
    }

    /// Writes the statuses that may differ from what is stored.
    fn refresh(&mut self) {
        let shared = &mut self.shared;
        for alloc in std::mem::take(&mut shared.due.endpoints) {
            let began = shared.begin_look();
            self.services.refresh(shared, &alloc);
            shared.count_look("endpoints", &began);
        }
        // What keeps services from being found is among what the jobs' statuses say.
        self.route_notices();
        let shared = &mut self.shared;
        for job in std::mem::take(&mut shared.due.jobs) {
            let began = shared.begin_look();
            self.volumes.note_plugin_job(shared, &job);
            self.jobs.refresh(shared, &self.periodic_jobs, &job);
            shared.count_look("job-status", &began);
        }
        for volume in std::mem::take(&mut shared.due.host_volumes) {
            let began = shared.begin_look();
            self.host_volumes.refresh(shared, &volume);
            shared.count_look("host-volume", &began);
        }
        for node in std::mem::take(&mut shared.due.nodes) {
            let began = shared.begin_look();
            self.nodes.refresh_node(shared, &self.volumes, &node);
            shared.count_look("node", &began);
        }
        self.nodes.write_queued(shared, &self.volumes);
        for deployment in std::mem::take(&mut shared.due.deployments) {
            let began = shared.begin_look();
            self.deployments.refresh(shared, &deployment, Pass::Change);
            shared.count_look("deployment", &began);
        }
        self.route_notices();
    }

    /// The first look at everything: each job is evaluated once, and what waits for a time waits again.
    fn begin(&mut self) {
        let shared = &mut self.shared;
        shared.view.set_settings(shared.config.scheduler.clone());
        let caches = &shared.caches;
        tracing::info!(
            jobs = caches.jobs.len(),
            allocations = caches.allocs.len(),
            nodes = caches.nodes.len(),
            "caches are complete"
        );
        let stored = caches.jobs.values().map(|job| convert::object_key(&job.metadata));
        let jobs: BTreeSet<JobKey> = stored.chain(shared.view.jobs_of_allocs().cloned()).collect();
        for job in jobs {
            self.jobs.adopt(shared, &job);
            shared.enqueue(&job, EvalTrigger::JobRegister);
        }
        let waiting: Vec<_> = shared
            .caches
            .allocs
            .values()
            .filter_map(|alloc| {
                let namespace = alloc.metadata.namespace.clone().unwrap_or_default();
                Some((JobKey::new(namespace, alloc.spec.job_name.clone()), alloc.spec.follow_up.clone()?))
            })
            .collect();
        for (job, follow_up) in waiting {
            shared.evaluations.broker.delay(&job, &follow_up);
        }
        let stored = shared.caches.allocs.values();
        let mut allocs: Vec<AllocKey> = stored.map(|alloc| convert::object_key(&alloc.metadata)).collect();
        allocs.sort();
        for alloc in allocs {
            finalizers::settle(shared, &alloc);
        }
        self.nodes.begin(shared);
        Volumes::begin(shared);
        HostVolumes::begin(shared);
        Services::begin(shared);
        Nodes::review_all_plugins(shared);
        self.route_notices();
        let shared = &mut self.shared;
        self.nodes.publish_ttl(shared);
        self.garbage.plan(shared);
        Volumes::plan_claim_gc(shared);
    }

    /// Has done what timers are set for.
    fn wake_up(&mut self) {
        let now = Instant::now();
        while let Some(wake) = self.shared.timers.pop_due(now) {
            let shared = &mut self.shared;
            match wake {
                Wake::Evaluate(job, trigger) => shared.enqueue(&job, trigger),
                Wake::JobStatus(job) => drop(shared.due.jobs.insert(job)),
                Wake::Launch(job) => self.periodic_jobs.arm(shared, &job),
                Wake::NodeStatus(node) => drop(shared.due.nodes.insert(node)),
                Wake::StatusQueue => self.nodes.queue_is_due(),
                Wake::Deployment(deployment) => drop(shared.due.deployments.insert(deployment)),
                Wake::DeploymentBatch(deployment) => self.deployments.join_window(shared, deployment),
                Wake::DeploymentWindow => self.deployments.commit_window(shared),
                Wake::StopAlloc(alloc) => allocations::carry_out_stop(shared, &alloc),
                Wake::Settle(alloc) => finalizers::settle(shared, &alloc),
                Wake::Volume(volume) => drop(shared.due.volumes.insert(volume)),
                Wake::HostVolume(volume) => drop(shared.due.host_volumes.insert(volume)),
                Wake::Attachment(name) => self.volumes.delete_if_for_nobody(shared, &name),
                Wake::Endpoints(alloc) => drop(shared.due.endpoints.insert(alloc)),
                Wake::ClaimGc => self.volumes.collect_claims(shared),
                Wake::FreeJob(job) => finalizers::free_job(shared, &job),
                Wake::NodeGone(node) => finalizers::settle_node(shared, &node),
                Wake::NodeSilent(node) => self.nodes.judge_silent(shared, &node),
                Wake::Garbage => self.garbage.collect(shared),
                Wake::Drain(node) => self.nodes.retry_drain(shared, &node),
                Wake::Drains => self.nodes.drains_are_due(),
                Wake::Ttl => self.nodes.publish_ttl(shared),
            }
            self.route_notices();
        }
    }

    pub(crate) fn next_wake(&self) -> Instant {
        let shared = &self.shared;
        let far = Instant::now() + LONGEST_WAIT;
        // Nothing is decided before, whatever is due.
        if !shared.has_begun {
            return far;
        }
        let timer = shared.timers.next().unwrap_or(far);
        let due = shared.evaluations.broker.next_due().map_or(far, |at| shared.instant_of(at));
        let rested = shared.evaluations.broker.rested_at().map_or(far, |at| shared.began + at);
        let volumes = self.volumes.wake_at(shared).unwrap_or(far);
        timer.min(due).min(rested).min(volumes)
    }

    /// Hands what was decided to the writer.
    fn begin_actions(&mut self) {
        while let Some(action) = self.shared.outbox.pop() {
            self.writer.begin(action);
        }
    }
}
