//! The services of one allocation and the probes of their checks that are under way. What a probe means, which restart
//! is due and what is registered are `drover-core`'s decisions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_api::Allocation;
use drover_api::allocation::{NetworkStatus, TaskRunState};
use drover_core::service::{
    self, CheckAnswer, CheckRestart, PlannedService, ProbeStart, ServiceError, ServiceStates, TaskSeen,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::plan::{AllocPlan, Wanted};
use super::task_commands::TaskCommands;
use super::task_states::TaskStates;
use crate::checks::{Prober, TaskPlace, TaskPlaces};
use crate::networks::AllocNetworks;
use crate::node::alloc_dir::AllocDir;
use crate::reporting::report::Report;
use crate::tasks::commands::CommandError;

/// A probe that has ended.
#[derive(Debug)]
pub(super) struct Probed {
    id: String,
    turn: u64,
    answer: CheckAnswer,
}

/// Where the tasks of one allocation run, as their runners say.
#[derive(Debug)]
pub(super) struct Places {
    /// The runners, also those that are made later.
    pub(super) commands: TaskCommands,
    /// The allocation's directory.
    pub(super) dir: AllocDir,
}

impl TaskPlaces for Places {
    fn place<'a>(&'a self, task: &'a str) -> BoxFuture<'a, Result<TaskPlace, String>> {
        async move {
            let located = self.commands.locate(task).map_err(|error| error.to_string())?;
            let located = located.await.unwrap_or(Err(CommandError::NotRunning)).map_err(|error| error.to_string())?;
            Ok(TaskPlace { handle: located.handle, dir: self.dir.task(task) })
        }
        .boxed()
    }
}

/// What the services are planned from.
struct Source {
    wanted: Wanted,
    networks: AllocNetworks,
    uid: String,
    /// The allocation's own network as they were planned with it: it is made after its runner.
    network: Option<NetworkStatus>,
}

impl Source {
    fn planned(&self) -> Result<Vec<PlannedService>, ServiceError> {
        let Wanted { allocation, job, group, .. } = &self.wanted;
        let mut allocation = Allocation::clone(allocation);
        allocation.status.get_or_insert_default().network.clone_from(&self.network);
        service::planned(&allocation, job, group)
    }

    /// Whether their allocation has a network of its own that they were not planned with.
    fn lacks_network(&self) -> bool {
        let has_own = self.wanted.group.networks.first().is_some_and(|network| network.mode.is_own());
        has_own && self.networks.are_real() && self.network.is_none()
    }

    /// Looks whether a network that is lacking was made.
    fn finds_network(&mut self) -> bool {
        if self.lacks_network() {
            self.network = self.networks.of(&self.uid).map(|network| network.status());
            return self.network.is_some();
        }
        false
    }
}

/// Services, probes and the restarts that wait for the group's shutdown delay.
pub(super) struct ServiceWatch {
    states: ServiceStates,
    source: Source,
    prober: Arc<dyn Prober>,
    places: Arc<Places>,
    /// At most one for each check of a registration, and those of the one before until they end.
    probes: JoinSet<Probed>,
    restarts: Vec<(Instant, CheckRestart)>,
    /// The services that were ready when they were looked at last.
    ready: BTreeMap<String, bool>,
}

impl ServiceWatch {
    /// The services of an allocation; what an earlier life of the agent has reported of them holds. Services that
    /// cannot be registered fail the allocation in its hook.
    pub(super) fn new(plan: &AllocPlan, reported: Option<&Report>, tasks: &TaskStates, places: Places) -> Self {
        let wanted = plan.wanted.borrow().clone();
        let wanted = Wanted { job: Arc::clone(&plan.job), group: Arc::clone(&plan.group), ..wanted };
        let networks = plan.env.machine.networks.clone();
        let reported = reported.filter(|_| !plan.restored.is_empty());
        // It keeps its address over the agent's restart, and what checks found there holds.
        let network = reported.and_then(|report| report.network.clone());
        let source = Source { wanted, networks, uid: plan.uid.clone(), network };
        let mut states = ServiceStates::new(source.planned().unwrap_or_default());
        if let Some(report) = reported {
            states.resume(&report.services, &report.checks, &seen(tasks), plan.env.clock.now());
        }
        let ready = ready(&states);
        let prober = Arc::clone(&plan.env.machine.prober);
        Self { states, source, prober, places: Arc::new(places), probes: JoinSet::new(), restarts: Vec::new(), ready }
    }

    /// How they fare.
    pub(super) fn states(&self) -> &ServiceStates {
        &self.states
    }

    /// Takes in how the tasks fare, and begins the probes of what was registered. Returns each service that became
    /// ready, or is not any more.
    pub(super) fn follow(&mut self, tasks: &TaskStates, now: Timestamp) -> Vec<(String, bool)> {
        if self.source.finds_network() {
            self.plan_again(now);
        }
        self.states.observe(&seen(tasks), now);
        // What cannot be asked yet has not failed.
        if !self.source.lacks_network() {
            for start in self.states.begin_probes() {
                self.begin(start);
            }
        }
        let now_ready = ready(&self.states);
        let before = std::mem::replace(&mut self.ready, now_ready);
        let was = |name: &str| before.get(name).copied().unwrap_or(false);
        self.ready.iter().filter(|(name, is)| **is != was(name)).map(|(name, is)| (name.clone(), *is)).collect()
    }

    /// Takes over the services of another version of the job. If they cannot be registered, those before stay.
    pub(super) fn adopt(&mut self, wanted: &Wanted, now: Timestamp) {
        self.source.wanted = wanted.clone();
        self.plan_again(now);
    }

    fn plan_again(&mut self, now: Timestamp) {
        match self.source.planned() {
            Ok(planned) => self.states.adopt(planned, now),
            Err(error) => tracing::warn!(%error, "the services of another version cannot be registered"),
        }
    }

    /// The next probe that ends; none while none is under way.
    pub(super) async fn probed(&mut self) -> Option<Probed> {
        match self.probes.join_next().await? {
            Ok(probed) => Some(probed),
            Err(error) => {
                tracing::error!(%error, "a probe broke off; its check finds nothing until its service is registered again");
                None
            }
        }
    }

    /// Takes in what a probe found, and begins the next one.
    pub(super) fn note(&mut self, probed: &Probed, now: Timestamp) {
        if let Some(next) = self.states.note(&probed.id, probed.turn, &probed.answer, now) {
            self.begin(next);
        }
    }

    fn begin(&mut self, start: ProbeStart) {
        self.probes.spawn(probe(Arc::clone(&self.prober), Arc::clone(&self.places), start));
    }

    /// Nothing is found any more, and nothing probed.
    pub(super) fn withdraw(&mut self) {
        self.states.withdraw();
        self.probes = JoinSet::new();
        self.restarts.clear();
        self.ready.clear();
    }

    /// When a restart is due or ripe.
    pub(super) fn wake_at(&self, now: Timestamp) -> Option<Instant> {
        let due = self.states.wake_at().map(|at| {
            let after = Duration::try_from(at.duration_since(now)).unwrap_or_default();
            Instant::now() + after
        });
        due.into_iter().chain(self.restarts.iter().map(|(at, _)| *at)).min()
    }

    /// Takes the services of the tasks that a check has restarted away, and lets the restarts be ripe after the delay.
    pub(super) fn begin_restarts(&mut self, now: Timestamp, delay: Duration) -> Vec<CheckRestart> {
        let due = self.states.due_restarts(now);
        let at = Instant::now() + delay;
        self.restarts.extend(due.iter().map(|restart| (at, restart.clone())));
        due
    }

    /// The restarts whose delay is over.
    pub(super) fn ripe_restarts(&mut self) -> Vec<CheckRestart> {
        let now = Instant::now();
        self.restarts.extract_if(.., |(at, _)| *at <= now).map(|(_, restart)| restart).collect()
    }

    /// A restart could not be ordered.
    pub(super) fn call_off(&mut self, restart: &CheckRestart, now: Timestamp) {
        self.states.call_off(&restart.tasks, now);
    }
}

fn seen(tasks: &TaskStates) -> BTreeMap<String, TaskSeen> {
    let seen = tasks.states().map(|(name, state)| {
        let is_running = state.state == TaskRunState::Running;
        (name.clone(), TaskSeen { is_running, started_at: state.started_at })
    });
    seen.collect()
}

fn ready(states: &ServiceStates) -> BTreeMap<String, bool> {
    states.registrations().into_iter().map(|known| (known.service_name, known.ready)).collect()
}

async fn probe(prober: Arc<dyn Prober>, places: Arc<Places>, start: ProbeStart) -> Probed {
    let ProbeStart { id, turn, probe, after, timeout } = start;
    tokio::time::sleep_until(prober.slot(Instant::now() + after)).await;
    let answer = match probe {
        Ok(probe) => tokio::time::timeout(timeout, prober.probe(&probe, &*places))
            .await
            .unwrap_or_else(|_| CheckAnswer::failure(format!("no answer within {}s", timeout.as_secs_f64()))),
        Err(why) => CheckAnswer::failure(why),
    };
    Probed { id, turn, answer }
}
