//! What `Job.status` says: phase, summary, columns and conditions, from the job, its allocations and its last
//! evaluation.

mod stopper;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::allocation::{ClientStatus, DesiredStatus};
use drover_api::condition::{ConditionStatus, Wanted};
use drover_api::deployment::DeploymentPhase;
use drover_api::job::{
    ChildrenSummary, GroupSummary, JobConditionType as Type, JobPhase, JobReason as Reason, JobType,
};
use drover_api::metric::AllocMetric;
use jiff::{SignedDuration, Timestamp};

use crate::model::{Alloc, Deployment, Job};
use crate::periodic;
use crate::scheduler::explain::explain;
use crate::task::failure::TaskFailure;
use crate::validate::{Violation, lacks_only_gateway, texts};

pub use stopper::Stopper;

/// How long a blocked placement is still on its way before it needs a human.
pub const BLOCKED_PATIENCE: SignedDuration = SignedDuration::from_secs(300);

/// What the status is made of.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The job.
    pub job: &'a Job,
    /// Whether it is being deleted, alone or with its namespace.
    pub is_ending: bool,
    /// All its allocations of this incarnation.
    pub allocs: &'a [Arc<Alloc>],
    /// Whether an evaluation is waiting or under way.
    pub is_evaluating: bool,
    /// For each group that found no place: why.
    pub failed: &'a BTreeMap<String, AllocMetric>,
    /// For each group: wanted and not placed.
    pub queued: &'a BTreeMap<String, i64>,
    /// Updates that wait for earlier ones.
    pub held_back: i64,
    /// The newest deployment of its present version.
    pub deployment: Option<&'a Deployment>,
    /// The automatic revert that is in effect.
    pub reverted: Option<Reverted>,
    /// Who set `spec.stop`, where that is known.
    pub stopper: Option<&'a Stopper>,
    /// The last failure of its allocations that are not replaced by what runs.
    pub failure: Option<&'a AllocFailure>,
    /// Since when placement is blocked.
    pub blocked_since: Option<Timestamp>,
    /// What is wrong with the spec.
    pub violations: &'a [Violation],
    /// The jobs that it launched, where it is periodic or parameterized.
    pub children: ChildrenSummary,
    /// The group whose count `spec.scale` overrides, with the count in effect and the manifest's.
    pub scaled: Option<(&'a str, i64, i64)>,
    /// Now.
    pub now: Timestamp,
}

/// An automatic revert that is in effect: the version of the spec failed, and a stable one runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reverted {
    /// The version in effect.
    pub version: i64,
    /// The stable version whose spec it runs.
    pub restored: i64,
}

/// The last failure of a task of one of its allocations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocFailure {
    /// The allocation.
    pub alloc: String,
    /// The node that it is on.
    pub node: String,
    /// Why.
    pub task: TaskFailure,
}

impl AllocFailure {
    /// The failure as one sentence.
    pub fn sentence(&self) -> String {
        format!("allocation {} on {}: {}", self.alloc, self.node, self.task.sentence())
    }
}

/// The status of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobVerdict {
    /// pending, running or dead.
    pub phase: JobPhase,
    /// By group.
    pub summary: BTreeMap<String, GroupSummary>,
    /// Running and desired, as `3/3`.
    pub running: String,
    /// The conditions.
    pub conditions: Vec<Wanted<Type, Reason>>,
    /// The reason that matters most.
    pub reason: Option<Reason>,
    /// That reason and what would help, as a sentence.
    pub message: String,
    /// When it will say something else although nothing happens.
    pub wake_at: Option<Timestamp>,
}

/// Judges a job.
pub fn judge(input: Input<'_>) -> JobVerdict {
    if periodic::is_template(&input.job.definition.spec) {
        return judge_template(&input);
    }
    let summary = summarize(&input);
    let counts = Counts::new(&input);
    let phase = phase(&input, &counts);
    let mut conditions = Vec::new();
    let stall = stall(&input, &counts);
    conditions.push(ready(&input, &counts, phase, stall.as_ref()));
    if let Some(stalled) = &stall {
        conditions.push(stalled.clone());
    } else if let Some(reconciling) = reconciling(&input, &counts) {
        conditions.push(reconciling);
    }
    if !is_stopped(&input) {
        conditions.extend(placed(&input));
    }
    if is_stopped(&input) {
        conditions.push(Wanted::yes(Type::Stopped, Reason::Stopped, stopper::explain(&input.job.key, input.stopper)));
    }
    if is_batch(&input) {
        conditions.extend(batch_outcome(&input, &counts));
    }
    if let Some(reverted) = input.reverted.filter(|_| !is_stopped(&input)) {
        let message = explain_revert(&input, &counts, reverted);
        conditions.push(Wanted::yes(Type::Reverted, Reason::AutoReverted, message));
    }
    if let Some((group, count, manifest)) = input.scaled {
        let message = format!(
            "spec.scale sets group {group} to {count}, over the {manifest} of spec.groups; remove spec.scale to use that one"
        );
        conditions.push(Wanted::yes(Type::ScaleOverride, Reason::ScaleInEffect, message));
    }
    let (reason, message) = telling(&conditions);
    let wake_at = input.blocked_since.filter(|_| stall.is_none()).map(|since| since + BLOCKED_PATIENCE);
    JobVerdict { phase, summary, running: running_column(&input, &counts), conditions, reason, message, wake_at }
}

/// Judges a periodic or parameterized job: it runs nothing itself, and is ready when it is accepted.
fn judge_template(input: &Input<'_>) -> JobVerdict {
    let spec = &input.job.definition.spec;
    let is_off = spec.periodic.is_some() && !periodic::is_armed(spec, false) && spec.parameterized.is_none();
    let mut conditions = Vec::new();
    if !input.violations.is_empty() {
        let is_of_cron = input.violations.iter().all(|violation| violation.code == "PeriodicSpec");
        let reason = if is_of_cron { Reason::InvalidCron } else { refusal(input.violations) };
        let text = texts(input.violations);
        conditions.push(Wanted::no(Type::Ready, reason, text.clone()));
        conditions.push(Wanted::yes(Type::Stalled, reason, text.clone()));
        let message = if reason == Reason::NoGateway { text.as_str() } else { "the spec is invalid" };
        conditions.push(Wanted::no(Type::Armed, reason, message));
    } else if is_stopped(input) {
        let text = format!("{}; what it launched goes on", stopper::explain(&input.job.key, input.stopper));
        conditions.push(ready_when_stopped(input, "the job is stopped, and launches nothing"));
        conditions.push(Wanted::no(Type::Armed, Reason::Stopped, "the job is stopped"));
        conditions.push(Wanted::yes(Type::Stopped, Reason::Stopped, text));
    } else if is_off {
        let text = "its schedule is switched off; set spec.periodic.enabled to true to launch it again";
        conditions.push(Wanted::yes(Type::Ready, Reason::ScheduleOff, text));
        conditions.push(Wanted::no(Type::Armed, Reason::ScheduleOff, text));
    } else {
        let text = if spec.parameterized.is_some() {
            "it waits to be dispatched"
        } else {
            "it is launched at the times of its schedule"
        };
        conditions.push(Wanted::yes(Type::Ready, Reason::Waiting, text));
        conditions.push(Wanted::yes(Type::Armed, Reason::Waiting, text));
    }
    let (reason, message) = telling(&conditions);
    let ChildrenSummary { pending, running, .. } = input.children;
    let phase = if is_stopped(input) { JobPhase::Dead } else { JobPhase::Running };
    JobVerdict {
        phase,
        summary: BTreeMap::new(),
        running: format!("{running}/{}", pending + running),
        conditions,
        reason,
        message,
        wake_at: None,
    }
}

/// Reason and sentence of what people should know first: that another version than the spec's runs, what needs a
/// human, what is under way, or else whether the job is ready.
fn telling(conditions: &[Wanted<Type, Reason>]) -> (Option<Reason>, String) {
    let holds = |kind: Type| conditions.iter().find(|one| one.r#type == kind && one.status == ConditionStatus::True);
    let is_settled = holds(Type::Reconciling).is_none() && holds(Type::Stopped).is_none();
    let settled = holds(Type::Reverted).filter(|_| is_settled);
    let found = settled.or(holds(Type::Stalled)).or(holds(Type::Reconciling)).or(holds(Type::Stopped));
    let found = found.or(conditions.first());
    (found.map(|one| one.reason), found.map_or_else(String::new, |one| one.message.clone()))
}

/// How many run of those that are wanted; of a batch job that is done, how many are complete.
fn running_column(input: &Input<'_>, counts: &Counts) -> String {
    let Counts { running, complete, desired, .. } = counts;
    if is_batch(input) && *running == 0 && *desired > 0 && complete >= desired {
        return format!("{complete}/{desired} complete");
    }
    format!("{running}/{desired}")
}

fn is_stopped(input: &Input<'_>) -> bool {
    input.job.stopped
}

fn is_batch(input: &Input<'_>) -> bool {
    matches!(input.job.definition.job_type(), JobType::Batch | JobType::Sysbatch)
}

struct Counts {
    desired: i64,
    running: i64,
    healthy: i64,
    complete: i64,
    /// Failed allocations that hold their slot: nothing will replace them.
    failed: Vec<String>,
    /// Failed allocations whose replacement waits for its time.
    rescheduling: i64,
    live: i64,
    stopping: i64,
    total: i64,
    first_failure: Option<String>,
}

impl Counts {
    fn new(input: &Input<'_>) -> Self {
        let wanted: i64 = match input.job.definition.job_type() {
            JobType::Service | JobType::Batch => input.job.counts.values().sum(),
            JobType::System | JobType::Sysbatch => {
                let there =
                    input.allocs.iter().filter(|alloc| alloc.desired == DesiredStatus::Run && !alloc.is_deleting);
                let slots: std::collections::BTreeSet<_> =
                    there.map(|alloc| (&alloc.group, &alloc.node, alloc.index)).collect();
                i64::try_from(slots.len()).unwrap_or(i64::MAX) + input.queued.values().sum::<i64>()
            }
        };
        let mut counts = Self {
            desired: if input.job.stopped { 0 } else { wanted },
            running: 0,
            healthy: 0,
            complete: 0,
            failed: Vec::new(),
            rescheduling: 0,
            live: 0,
            stopping: 0,
            total: 0,
            first_failure: None,
        };
        let replaced: std::collections::BTreeSet<&str> =
            input.allocs.iter().filter_map(|alloc| alloc.previous.as_deref()).collect();
        for alloc in input.allocs {
            // The deployment decides whether it is replaced, and fails if it is not.
            let is_rolled_out = input.deployment.is_some_and(|deployment| {
                deployment.phase.is_active() && alloc.deployment.as_deref() == Some(&*deployment.key.name)
            });
            counts.add(alloc, replaced.contains(&*alloc.key.name), input.is_evaluating || is_rolled_out);
        }
        counts
    }

    fn add(&mut self, alloc: &Alloc, is_replaced: bool, is_open: bool) {
        self.total += 1;
        self.live += i64::from(!alloc.is_client_terminal() && !alloc.has_ended);
        if alloc.is_server_terminal() {
            self.stopping += i64::from(!alloc.is_client_terminal() && !alloc.has_ended);
            return;
        }
        match alloc.client {
            ClientStatus::Running => {
                self.running += 1;
                self.healthy += i64::from(alloc.is_healthy());
            }
            ClientStatus::Complete if !is_replaced => self.complete += 1,
            // Until it was evaluated nobody knows whether it will be replaced.
            ClientStatus::Failed if !is_replaced && (alloc.follow_up.is_some() || is_open) => {
                self.rescheduling += 1;
            }
            ClientStatus::Failed if !is_replaced => {
                self.first_failure.get_or_insert_with(|| alloc.key.name.to_string());
                self.failed.push(alloc.key.name.to_string());
            }
            ClientStatus::Pending
            | ClientStatus::Complete
            | ClientStatus::Failed
            | ClientStatus::Lost
            | ClientStatus::Unknown => {}
        }
    }
}

fn phase(input: &Input<'_>, counts: &Counts) -> JobPhase {
    if input.job.definition.job_type() == JobType::System {
        return if is_stopped(input) && counts.live == 0 { JobPhase::Dead } else { JobPhase::Running };
    }
    if counts.live > 0 {
        return JobPhase::Running;
    }
    if input.is_evaluating || counts.rescheduling > 0 || !input.failed.is_empty() || !input.violations.is_empty() {
        return JobPhase::Pending;
    }
    if counts.total > 0 || is_stopped(input) || counts.desired == 0 { JobPhase::Dead } else { JobPhase::Pending }
}

fn summarize(input: &Input<'_>) -> BTreeMap<String, GroupSummary> {
    let names = input.job.definition.spec.groups.iter().map(|group| group.name.clone());
    let mut summary: BTreeMap<String, GroupSummary> = names.map(|name| (name, GroupSummary::default())).collect();
    for alloc in input.allocs {
        let group = summary.entry(alloc.group.clone()).or_default();
        let field = match alloc.client {
            ClientStatus::Pending => &mut group.starting,
            ClientStatus::Running => &mut group.running,
            ClientStatus::Complete => &mut group.complete,
            ClientStatus::Failed => &mut group.failed,
            ClientStatus::Lost => &mut group.lost,
            ClientStatus::Unknown => &mut group.unknown,
        };
        *field += 1;
    }
    for (group, queued) in input.queued {
        summary.entry(group.clone()).or_default().queued = *queued;
    }
    summary
}

/// What needs a human, if anything does.
fn stall(input: &Input<'_>, counts: &Counts) -> Option<Wanted<Type, Reason>> {
    if !input.violations.is_empty() {
        return Some(Wanted::yes(Type::Stalled, refusal(input.violations), texts(input.violations)));
    }
    if is_stopped(input) {
        return None;
    }
    if input.blocked_since.is_some_and(|since| input.now.duration_since(since) >= BLOCKED_PATIENCE) {
        return Some(Wanted::yes(Type::Stalled, Reason::PlacementBlocked, explain_all(input.failed)));
    }
    if let Some(failed) = input.deployment.filter(|deployment| deployment.phase == DeploymentPhase::Failed) {
        let name = &failed.key.name;
        let why = input.failure.map_or_else(
            || format!("; its progress stands in `drover deployment status {name}`"),
            |failure| format!(": {}", failure.sentence()),
        );
        let message = format!("deployment {name} failed{why}; change the job to try again");
        return Some(Wanted::yes(Type::Stalled, Reason::DeploymentFailed, message));
    }
    let is_rolling = input.deployment.is_some_and(|deployment| deployment.phase.is_active());
    if let Some(reverted) = input.reverted.filter(|_| !is_rolling && !input.is_evaluating) {
        return Some(Wanted::yes(Type::Stalled, Reason::DeploymentFailed, explain_revert(input, counts, reverted)));
    }
    let name = counts.first_failure.as_ref()?;
    let (n, reason) =
        (counts.failed.len(), if is_batch(input) { Reason::Failed } else { Reason::ReschedulesExhausted });
    let message = format!(
        "{n} {} failed and will not be rescheduled: {}; change the job, or delete the allocation to try again",
        if n == 1 { "allocation" } else { "allocations" },
        why(input, name)
    );
    Some(Wanted::yes(Type::Stalled, reason, message))
}

/// Why an allocation failed, as far as that is known.
fn why(input: &Input<'_>, name: &str) -> String {
    input.failure.map_or_else(|| format!("allocation {name}"), AllocFailure::sentence)
}

/// Which version runs instead of the spec's, how it is, why the spec's does not, and what to do.
fn explain_revert(input: &Input<'_>, counts: &Counts, reverted: Reverted) -> String {
    let Reverted { version, restored } = reverted;
    let health = if counts.healthy >= counts.desired { "is healthy" } else { "is not healthy yet" };
    let cause = input.failure.map_or_else(String::new, |failure| format!(" ({})", failure.sentence()));
    format!(
        "version {version} runs stable version {restored} again and {health}, because the roll-out of the spec failed{cause}; correct the spec and apply it: unchanged it changes nothing"
    )
}

fn reconciling(input: &Input<'_>, counts: &Counts) -> Option<Wanted<Type, Reason>> {
    let yes = |reason, message: String| Some(Wanted::yes(Type::Reconciling, reason, message));
    let last = || input.failure.map_or_else(String::new, |failure| format!("; {}", failure.sentence()));
    if is_stopped(input) {
        let message = "its allocations are being stopped".to_owned();
        return if counts.live > 0 { yes(Reason::Stopping, message) } else { None };
    }
    if !input.failed.is_empty() {
        return yes(Reason::Placing, explain_all(input.failed));
    }
    if counts.rescheduling > 0 {
        return yes(Reason::Rescheduling, format!("failed allocations wait for their reschedule{}", last()));
    }
    let is_settled = if is_batch(input) {
        counts.complete >= counts.desired
    } else {
        counts.healthy >= counts.desired
            && input.held_back == 0
            && !input.is_evaluating
            && counts.stopping == 0
            && input.deployment.is_none_or(|deployment| !deployment.phase.is_active())
    };
    if is_settled {
        return None;
    }
    if let Some(deployment) = input.deployment.filter(|deployment| deployment.phase.is_active()) {
        return yes(Reason::DeploymentRunning, format!("{}{}", rolling(deployment), last()));
    }
    if is_batch(input) && counts.running > 0 {
        return yes(Reason::Running, "its tasks run".to_owned());
    }
    yes(Reason::Placing, format!("allocations are being placed, started or replaced{}", last()))
}

/// What a roll-out does. How far it is stands in its own object, and in no message that would be written again and
/// again.
fn rolling(deployment: &Deployment) -> String {
    let (name, version) = (&deployment.key.name, deployment.job_version);
    let waits = deployment.groups.values().any(|state| state.desired_canaries > 0 && !state.promoted);
    let next = if waits { "; its canaries wait to be promoted" } else { "" };
    format!("deployment {name} rolls version {version} out{next}")
}

fn ready(
    input: &Input<'_>,
    counts: &Counts,
    phase: JobPhase,
    stall: Option<&Wanted<Type, Reason>>,
) -> Wanted<Type, Reason> {
    if let Some(stall) = stall {
        return Wanted::no(Type::Ready, stall.reason, stall.message.clone());
    }
    if let Some(going_on) = reconciling(input, counts) {
        return Wanted::no(Type::Ready, going_on.reason, going_on.message);
    }
    if is_stopped(input) {
        return ready_when_stopped(input, "the job is stopped, and nothing of it runs");
    }
    if is_batch(input) {
        return if phase == JobPhase::Dead {
            Wanted::yes(Type::Ready, Reason::Completed, "all allocations are complete")
        } else {
            Wanted::no(Type::Ready, Reason::Running, "its tasks run")
        };
    }
    Wanted::yes(Type::Ready, Reason::AllHealthy, "all desired allocations are running and healthy")
}

/// A stopped job is what its manifest asks for, so that those who wait for it go on; one that is being deleted is on
/// its way out.
fn ready_when_stopped(input: &Input<'_>, message: &str) -> Wanted<Type, Reason> {
    if input.is_ending {
        return Wanted::no(Type::Ready, Reason::Stopped, "the job is being deleted");
    }
    Wanted::yes(Type::Ready, Reason::Stopped, message)
}

/// Whether all that is wanted has a node; none: the spec is invalid, and nothing is wanted.
fn placed(input: &Input<'_>) -> Option<Wanted<Type, Reason>> {
    if !input.violations.is_empty() {
        let reason = Some(refusal(input.violations)).filter(|reason| *reason == Reason::NoGateway)?;
        return Some(Wanted::no(Type::Placed, reason, texts(input.violations)));
    }
    Some(if input.failed.is_empty() {
        Wanted::yes(Type::Placed, Reason::AllPlaced, "every wanted allocation has a node")
    } else {
        Wanted::no(Type::Placed, Reason::NotPlaced, explain_all(input.failed))
    })
}

/// Why a job with violations is not acted on.
fn refusal(violations: &[Violation]) -> Reason {
    if lacks_only_gateway(violations) { Reason::NoGateway } else { Reason::InvalidSpec }
}

fn batch_outcome(input: &Input<'_>, counts: &Counts) -> Option<Wanted<Type, Reason>> {
    if let Some(name) = &counts.first_failure {
        let message = input.failure.map_or_else(|| format!("allocation {name} failed"), AllocFailure::sentence);
        return Some(Wanted::yes(Type::Failed, Reason::Failed, message));
    }
    (counts.desired > 0 && counts.complete >= counts.desired)
        .then(|| Wanted::yes(Type::Complete, Reason::Completed, "all allocations are complete"))
}

fn explain_all(failed: &BTreeMap<String, AllocMetric>) -> String {
    failed.iter().map(|(group, metric)| format!("group {group}: {}", explain(metric))).collect::<Vec<_>>().join("; ")
}
