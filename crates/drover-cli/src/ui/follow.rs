//! Follows a job until it is where its manifest wants it, or cannot get there. On a terminal as one live tree, else a
//! line for each change. Ctrl-C ends the looking, never the job.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::time::Duration;

use anyhow::Context;
use drover_api::allocation::{ClientStatus, TaskEvent};
use drover_api::condition::ConditionStatus;
use drover_api::deployment::DeploymentPhase;
use drover_api::job::{JobConditionType, JobStatus, JobType};
use drover_api::{Allocation, Deployment, Job};
use drover_core::deployment::newest;
use drover_core::periodic;
use futures::StreamExt;
use futures::stream::select_all;
use kube::Client;

use crate::ui::canvas::Canvas;
use crate::ui::stdio::{answer, complain};
use crate::ui::tree::{AllocRow, Scene, phase, render};
use drover_clock::{Clock, SystemClock};
use drover_store::{Change, KubeStore, Object, Selection, Store};

/// The watched object ended badly.
pub(crate) const ENDED_BADLY: u8 = 2;
/// The time was over.
pub(crate) const TIMED_OUT: u8 = 3;
/// Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;
/// How long to watch without a timeout.
pub(crate) const FOREVER: Duration = Duration::from_hours(24 * 365);
/// How often the live tree is drawn again although nothing changed: ages and the deadline count.
const TICK: Duration = Duration::from_secs(1);

/// What to follow.
#[derive(Clone, Debug)]
pub(crate) struct Follow<'a> {
    /// The job's namespace.
    pub(crate) namespace: &'a str,
    /// Its name.
    pub(crate) job: &'a str,
    /// The generation that must have been seen before anything counts.
    pub(crate) generation: i64,
    /// The command that looks again.
    pub(crate) again: String,
    /// How long to look.
    pub(crate) timeout: Option<Duration>,
    /// What is a good end.
    pub(crate) goal: Goal,
}

/// What a good end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// The job runs, or is done: it does neither where it is stopped.
    Runs,
    /// It is as its manifest wants it, which may be stopped.
    AsWanted,
}

enum Seen {
    Job(Change<Job>),
    Deployment(Change<Deployment>),
    Alloc(Change<Allocation>),
}

#[derive(Default)]
struct Known {
    job: Option<Job>,
    deployments: BTreeMap<String, Deployment>,
    allocs: BTreeMap<String, Allocation>,
}

/// Where it ended.
enum End {
    Good(String),
    Bad(String),
}

/// Follows, and says with which code the command ends.
pub(crate) async fn follow(client: Client, follow: &Follow<'_>) -> anyhow::Result<u8> {
    let store = KubeStore::new(client, Duration::from_secs(30));
    let selection =
        |fields: String| Selection { namespace: Some(follow.namespace.to_owned()), fields: Some(fields), labels: None };
    let of_job = || selection(format!("spec.jobName={}", follow.job));
    let mut changes = select_all([
        store.watch::<Job>(selection(format!("metadata.name={}", follow.job))).map(Seen::Job).boxed(),
        store.watch::<Deployment>(of_job()).map(Seen::Deployment).boxed(),
        store.watch::<Allocation>(of_job()).map(Seen::Alloc).boxed(),
    ]);
    let (mut known, mut screen) = (Known::default(), Screen::new());
    let deadline = tokio::time::Instant::now() + follow.timeout.unwrap_or(FOREVER);
    let mut tick = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            biased;
            signal = tokio::signal::ctrl_c() => {
                signal.context("listening for Ctrl-C")?;
                complain(&format!("detached: the job goes on; look again with `{}`", follow.again));
                return Ok(INTERRUPTED);
            }
            () = tokio::time::sleep_until(deadline) => {
                screen.draw(&known)?;
                let status = known.job.as_ref().and_then(|job| job.status.as_ref());
                let why = status.map_or_else(|| "nothing is known of it".to_owned(), cause);
                complain(&format!("timed out: djob/{} is not there yet: {why}; look again with `{}`", follow.job, follow.again));
                return Ok(TIMED_OUT);
            }
            Some(seen) = changes.next() => {
                if let Seen::Job(Change::Gone(_)) = &seen {
                    complain(&format!("djob/{} was deleted", follow.job));
                    return Ok(ENDED_BADLY);
                }
                known.take(seen);
            }
            _ = tick.tick() => screen.draw(&known)?,
        }
        screen.tell(&known);
        match known.end(follow.generation, follow.goal) {
            None => {}
            Some(End::Good(text)) => {
                screen.draw(&known)?;
                complain(&text);
                return Ok(0);
            }
            Some(End::Bad(text)) => {
                screen.draw(&known)?;
                complain(&text);
                return Ok(ENDED_BADLY);
            }
        }
    }
}

impl Known {
    fn take(&mut self, seen: Seen) {
        match seen {
            Seen::Job(Change::Present(job)) => self.job = Some(*job),
            Seen::Job(Change::Interrupted(why))
            | Seen::Deployment(Change::Interrupted(why))
            | Seen::Alloc(Change::Interrupted(why)) => complain(&format!("the watch broke and restarts: {why}")),
            Seen::Job(_) => {}
            Seen::Deployment(change) => keep(&mut self.deployments, change),
            Seen::Alloc(change) => keep(&mut self.allocs, change),
        }
    }

    fn newest_deployment(&self) -> Option<&Deployment> {
        newest(self.deployments.values())
    }

    /// The end, once the generation was seen.
    fn end(&self, generation: i64, goal: Goal) -> Option<End> {
        let job = self.job.as_ref()?;
        let status = job.status.as_ref().filter(|status| status.observed_generation >= generation)?;
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let of_generation = self.deployments.values().filter(|one| one.spec.job_generation >= generation);
        let failed = of_generation.filter(|one| {
            let phase = one.status.as_ref().map_or(DeploymentPhase::Running, |status| status.phase);
            matches!(phase, DeploymentPhase::Failed)
        });
        if let Some(deployment) = failed.max_by_key(|one| one.spec.job_version) {
            return Some(End::Bad(self.post_mortem(deployment)));
        }
        let is = |kind: JobConditionType| {
            status.conditions.iter().find(|one| one.r#type == kind && one.status == ConditionStatus::True)
        };
        if let Some(stopped) = is(JobConditionType::Stopped).filter(|_| goal == Goal::Runs) {
            return Some(End::Bad(format!("djob/{name} does not run: {}", stopped.message)));
        }
        if let Some(stalled) = is(JobConditionType::Stalled).or(is(JobConditionType::Failed)) {
            return Some(End::Bad(format!("djob/{name}: {}: {}", stalled.reason, stalled.message)));
        }
        let ready = is(JobConditionType::Ready)?;
        let done = match job.spec.r#type {
            _ if is(JobConditionType::Stopped).is_some() => "is stopped",
            JobType::Batch | JobType::Sysbatch if periodic::is_template(&job.spec) => "is armed",
            JobType::Batch | JobType::Sysbatch => "is done",
            JobType::Service | JobType::System => "runs",
        };
        Some(End::Good(format!("djob/{name} {done}: {}", ready.message)))
    }

    /// Why a deployment failed: its condition, and the last words of the tasks of each bad allocation.
    fn post_mortem(&self, deployment: &Deployment) -> String {
        let name = deployment.metadata.name.as_deref().unwrap_or_default();
        let message = deployment.status.iter().flat_map(|status| &status.conditions).next();
        let mut text = format!("ddep/{name} failed: {}", message.map_or("", |one| one.message.as_str()));
        let bad = self.allocs.values().filter(|alloc| {
            let status = alloc.status.clone().unwrap_or_default();
            let is_unhealthy = status.health.is_some_and(|health| !health.healthy);
            alloc.spec.deployment_name == name && (is_unhealthy || status.client_status == ClientStatus::Failed)
        });
        for alloc in bad.take(3) {
            text.push_str(&last_words(alloc));
        }
        text
    }
}

/// The last output of the tasks of an allocation.
fn last_words(alloc: &Allocation) -> String {
    let name = alloc.metadata.name.as_deref().unwrap_or_default();
    let mut text = format!("\n  alloc/{name} on {}:", alloc.spec.node_name);
    for (task, state) in alloc.status.iter().flat_map(|status| &status.task_states) {
        let says = |event: &&TaskEvent| !event.message.is_empty();
        for event in state.events.iter().rev().filter(says).take(3).collect::<Vec<_>>().iter().rev() {
            // Writing to a String cannot fail.
            write!(text, "\n    task {task}: {}: {}", event.r#type, event.message).ok();
        }
    }
    text
}

/// The reason that matters most, and its sentence.
fn cause(status: &JobStatus) -> String {
    let columns = &status.columns;
    if columns.message == "-" { columns.reason.clone() } else { format!("{}: {}", columns.reason, columns.message) }
}

fn keep<K: Object>(known: &mut BTreeMap<String, K>, change: Change<K>) {
    match change {
        Change::Present(object) => drop(known.insert(object.key().name, *object)),
        Change::Gone(object) => drop(known.remove(&object.key().name)),
        Change::Restarted | Change::InSync | Change::Malformed(..) | Change::Interrupted(_) => {}
    }
}

/// Where progress goes: standard error, so that standard output holds results only.
struct Screen {
    is_live: bool,
    canvas: Canvas,
    told: BTreeMap<String, String>,
}

impl Screen {
    fn new() -> Self {
        let is_live = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { is_live, canvas: Canvas::default(), told: BTreeMap::new() }
    }

    /// Draws the live tree over the one before.
    fn draw(&mut self, known: &Known) -> anyhow::Result<()> {
        let Some(job) = known.job.as_ref().filter(|_| self.is_live) else { return Ok(()) };
        let now = SystemClock.now();
        let allocs: Vec<AllocRow> = known.allocs.values().map(|alloc| AllocRow::of(alloc, now)).collect();
        let lines = render(Scene { job, deployment: known.newest_deployment(), allocs: &allocs, now });
        self.canvas.draw(&lines.join("\n"), &mut io::stderr().lock())?;
        Ok(())
    }

    /// One line for each object that changed in a way that people care about.
    fn tell(&mut self, known: &Known) {
        if self.is_live {
            return;
        }
        let mut lines = Vec::new();
        if let Some(job) = &known.job {
            let status = job.status.clone().unwrap_or_default();
            let name = job.metadata.name.clone().unwrap_or_default();
            let columns = &status.columns;
            lines.push((
                format!("djob/{name}"),
                format!("{}, running {}, {}", phase(&status), columns.running, cause(&status)),
            ));
        }
        for (name, deployment) in &known.deployments {
            let status = deployment.status.clone().unwrap_or_default();
            let columns = status.columns;
            let text = format!(
                "{}, healthy {}/{}, unhealthy {}, {}",
                status.phase, columns.healthy, columns.desired, columns.unhealthy, columns.reason
            );
            lines.push((format!("ddep/{name}"), text));
        }
        for (name, alloc) in &known.allocs {
            let row = AllocRow::of(alloc, jiff::Timestamp::UNIX_EPOCH);
            let text = format!("{} on {}, healthy {}, {}", row.status, row.node, row.healthy, row.reason);
            lines.push((format!("alloc/{name}"), text));
        }
        for (object, text) in lines {
            if self.told.get(&object) != Some(&text) {
                complain(&format!("{object}: {text}"));
                self.told.insert(object, text);
            }
        }
    }
}

/// Prints a tree once.
pub(crate) fn show(scene: Scene<'_>) -> anyhow::Result<()> {
    answer(format!("{}\n", render(scene).join("\n")).as_bytes())
}
