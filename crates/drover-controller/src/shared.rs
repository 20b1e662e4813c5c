//! What the components of a leader share: what the watches showed, what is about to be written, and what is to be done
//! next.
//!
//! A component has its own state and gets this beside each change. It never calls another component: it notifies all of
//! them through [`Shared::notify`], asks for evaluations, marks what must be looked at, sets timers, and leaves
//! [`Action`]s to the writer. Nothing here knows the API server.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use drover_api::condition::Wanted;
use drover_api::job::{EvalTrigger, JobConditionType, JobReason};
use drover_api::{Allocation, ClientNode, Deployment, Job, JobVersion};
use drover_clock::SharedClock;
use drover_core::broker::blocked::{BlockedJobs, Freed};
use drover_core::broker::queue::Broker;
use drover_core::ids::{AllocKey, JobKey, NodeName, ObjectKey};
use drover_core::model::{Alloc, DEFAULT_PRIORITY, Health};
use drover_core::scheduler;
use drover_core::snapshot::ClusterView;
use drover_store::Object;
use drover_store::convert;
use drover_store::events::{self, Happening};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::actions::Action;
use crate::cache::{Caches, Observed};
use crate::config::ControllerConfig;
use crate::keys::key_of;
use crate::recorder::Recorder;
use crate::timers::{TimerId, Timers, Wake};

/// Pause before something that failed is tried again.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// What all components of a leader see and may change.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: SharedClock,
    /// The name of this process in the leader election.
    pub(crate) identity: String,
    /// What is in effect.
    pub(crate) config: ControllerConfig,
    /// What the watches showed.
    pub(crate) caches: Caches,
    /// The same for the scheduler, with what was decided and is not stored yet.
    pub(crate) view: ClusterView,
    /// How many verdicts on allocations the view has taken in. What the API server counts says nothing of that: the
    /// answer to a write overtakes older writes that the watch has yet to show.
    pub(crate) view_index: u64,
    pub(crate) evaluations: Evaluations,
    pub(crate) timers: Timers,
    /// What may differ from what is stored.
    pub(crate) due: Due,
    /// What the writer is to do.
    pub(crate) outbox: Outbox,
    /// What components have not been told yet.
    notices: VecDeque<Notice>,
    pub(crate) recorder: Recorder,
    pub(crate) rng: fastrand::Rng,
    /// When the term began.
    pub(crate) began: Instant,
    /// Whether the caches are complete and decisions are made.
    pub(crate) has_begun: bool,
}

/// Evaluations that wait, for their turn or for room, and what the last ones saw.
#[derive(Debug, Default)]
pub(crate) struct Evaluations {
    pub(crate) broker: Broker,
    pub(crate) blocked: BlockedJobs,
    /// What the last evaluation of each job left.
    pub(crate) last: BTreeMap<JobKey, LastEvaluation>,
    /// Plans that are being written.
    pub(crate) n_plans: usize,
}

/// What is known of a job's last evaluation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastEvaluation {
    /// The newest verdict that it saw; none before the first one of this leader.
    pub(crate) saw: Option<u64>,
    /// Updates that wait for earlier ones.
    pub(crate) held_back: i64,
}

/// Objects whose stored status may differ from what it should be.
#[derive(Debug, Default)]
pub(crate) struct Due {
    pub(crate) jobs: BTreeSet<JobKey>,
    pub(crate) nodes: BTreeSet<NodeName>,
    pub(crate) deployments: BTreeSet<ObjectKey>,
    pub(crate) volumes: BTreeSet<ObjectKey>,
    pub(crate) host_volumes: BTreeSet<ObjectKey>,
    /// Allocations whose slices may differ from what they should be.
    pub(crate) endpoints: BTreeSet<AllocKey>,
}

/// Actions for the writer, in the order in which they begin.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    actions: VecDeque<Action>,
    n_pushed: u64,
}

impl Outbox {
    /// Leaves an action to the writer.
    pub(crate) fn push(&mut self, action: Action) {
        self.n_pushed += 1;
        self.actions.push_back(action);
    }

    /// The next action.
    pub(crate) fn pop(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// How many there were so far.
    pub(crate) const fn n_pushed(&self) -> u64 {
        self.n_pushed
    }
}

/// What one component found out, and others need to know.
#[derive(Debug)]
pub(crate) enum Notice {
    /// An object, as the answer to a write has it.
    Job(Observed<Job>),
    Version(Observed<JobVersion>),
    Allocation(Observed<Allocation>),
    Node(Observed<ClientNode>),
    Deployment(Observed<Deployment>),
    /// An evaluation of the job is over.
    Evaluated(JobKey),
    /// What keeps the job's services from being found; none: nothing any more.
    Services(JobKey, Option<Wanted<JobConditionType, JobReason>>),
    /// The job is a template whose launches are due at times.
    Scheduled(JobKey),
    /// The job launches nothing any more.
    Unscheduled(JobKey),
}

impl Shared {
    /// The state of a leader that has seen nothing yet.
    pub(crate) fn new(
        clock: SharedClock,
        config: ControllerConfig,
        identity: String,
        rng: fastrand::Rng,
        recorder: Recorder,
    ) -> Self {
        let mut view = ClusterView::default();
        view.set_settings(config.scheduler.clone());
        Self {
            clock,
            identity,
            config,
            caches: Caches::default(),
            view,
            view_index: 0,
            evaluations: Evaluations::default(),
            timers: Timers::default(),
            due: Due::default(),
            outbox: Outbox::default(),
            notices: VecDeque::new(),
            recorder,
            rng,
            began: Instant::now(),
            has_begun: false,
        }
    }

    /// Tells all components something, after the present change.
    pub(crate) fn notify(&mut self, notice: Notice) {
        self.notices.push_back(notice);
    }

    /// Tells all components something, if there is anything to tell.
    pub(crate) fn notify_all(&mut self, notice: Option<Notice>) {
        self.notices.extend(notice);
    }

    /// The oldest notice that no component has been told.
    pub(crate) fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Queues an evaluation of a job, if the scheduler of its type has a use for the trigger.
    pub(crate) fn enqueue(&mut self, job: &JobKey, trigger: EvalTrigger) {
        let known = self.view.job(job).map(|job| &job.definition);
        if known.is_some_and(|known| !scheduler::accepts(known.job_type(), trigger)) {
            return;
        }
        let priority = known.map_or(DEFAULT_PRIORITY, |known| known.spec.priority);
        let rollout = self.view.latest_deployment(job).filter(|_| trigger == EvalTrigger::DeploymentWatcher);
        let priority = rollout.map_or(priority, |rollout| rollout.priority(priority));
        self.recorder.asked(job);
        self.evaluations.broker.enqueue(job, trigger, priority);
    }

    /// There is room on a node: the jobs that it may help are evaluated.
    pub(crate) fn free_node(&mut self, node: &NodeName) {
        let Some(class) = self.view.node_entry(node).map(|entry| entry.class.to_string()) else { return };
        self.free(Freed::Class(class));
        self.free(Freed::Node(node.clone()));
    }

    /// Something became free, or there: the jobs that it may help are evaluated.
    pub(crate) fn free(&mut self, what: Freed) {
        for job in self.evaluations.blocked.free(what, self.view_index, self.clock.now()) {
            self.enqueue(&job, EvalTrigger::QueuedAllocs);
        }
    }

    /// Looks at something again after a while.
    pub(crate) fn wake_in(&mut self, after: Duration, wake: Wake) {
        self.wake_at(Instant::now() + after, wake);
    }

    /// Looks at something again at a time.
    pub(crate) fn wake_at(&mut self, at: Instant, wake: Wake) -> TimerId {
        self.timers.set(at, wake)
    }

    /// The moment of a time of day on the monotonic clock, as far as can be told now.
    pub(crate) fn instant_of(&self, at: Timestamp) -> Instant {
        let wait = at.duration_since(self.clock.now());
        Instant::now() + Duration::try_from(wait).unwrap_or(Duration::ZERO)
    }

    /// Time since the term began, on the monotonic clock.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Reports a happening to an object. Losing one is no loss of state: it is only logged.
    pub(crate) fn report<K: Object>(&mut self, about: &K, happening: &Happening<'_>) {
        let event = events::event(about, "controller", &self.identity, happening, self.clock.now());
        self.outbox.push(Action::Report(Box::new(event)));
    }

    /// Puts a stored allocation into the view, as what was declared of it says.
    pub(crate) fn put_stored(&mut self, object: &Allocation) {
        let mut alloc = convert::alloc(object);
        if let Some(name) = &alloc.deployment {
            let key = ObjectKey::new(Arc::clone(&alloc.key.namespace), Arc::clone(name));
            let judged =
                self.view.deployment(&alloc.job, &key).and_then(|known| known.judgements.get(alloc.uid.as_str()));
            if let Some(health) = judged {
                alloc.health = Some(Health { deployment: alloc.deployment.clone(), ..health.clone() });
            }
        }
        // The verdict is as new as its last change, not as the object.
        let is_known = |known: &&Arc<Alloc>| {
            known.uid == alloc.uid
                && known.canary == alloc.canary
                && known.health == alloc.health
                && known.deployment == alloc.deployment
        };
        let known_since = self.view.alloc(&alloc.key).filter(is_known).map(|known| known.health_index);
        alloc.health_index = known_since.unwrap_or_else(|| {
            self.view_index += 1;
            self.view_index
        });
        self.view.put_alloc(alloc);
    }

    /// The versions of an incarnation of a job, oldest first.
    pub(crate) fn versions_of(&self, job: &JobKey, uid: &str) -> Vec<Arc<JobVersion>> {
        let keys = self.caches.version_keys.get(job).into_iter().flatten();
        let mut versions: Vec<_> = keys
            .filter_map(|key| self.caches.versions.get(key))
            .filter(|version| version.spec.job_uid == uid)
            .cloned()
            .collect();
        versions.sort_by_key(|version| version.spec.version);
        versions
    }

    /// A job as it is stored.
    pub(crate) fn job(&self, key: &JobKey) -> Option<&Arc<Job>> {
        self.caches.jobs.get(&key_of(key))
    }
}
