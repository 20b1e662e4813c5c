//! A job and what belongs to it as one tree: job, deployment, groups, allocations. Pure: it is given what is there and
//! the time.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use drover_api::allocation::{ClientStatus, DesiredStatus};
use drover_api::condition::ConditionStatus;
use drover_api::deployment::{DeploymentPhase, GroupState};
use drover_api::job::{JobColumns, JobConditionType, JobPhase, JobReason, JobStatus};
use drover_api::{Allocation, Deployment, Job};
use drover_core::periodic;
use jiff::Timestamp;

use crate::ui::natural;
use crate::ui::output::span;

/// Allocations of one group that are shown; those that matter most.
const SHOWN: usize = 20;
/// Cells of a bar.
const BAR: usize = 20;

/// One allocation, as far as the tree shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllocRow {
    /// Its name.
    pub(crate) name: String,
    /// Its group.
    pub(crate) group: String,
    /// Its node.
    pub(crate) node: String,
    /// What is wanted of it.
    pub(crate) desired: String,
    /// How it fares.
    pub(crate) status: String,
    /// true, false or -.
    pub(crate) healthy: String,
    /// Its version.
    pub(crate) version: String,
    /// Its deployment.
    pub(crate) deployment: String,
    /// The reason of the condition that matters most.
    pub(crate) reason: String,
    /// Its age.
    pub(crate) age: String,
}

impl AllocRow {
    /// The row of an object.
    pub(crate) fn of(object: &Allocation, now: Timestamp) -> Self {
        let (spec, status) = (&object.spec, object.status.clone().unwrap_or_default());
        Self {
            name: object.metadata.name.clone().unwrap_or_default(),
            group: spec.group.clone(),
            node: spec.node_name.clone(),
            desired: spec.desired_status.to_string(),
            status: status.client_status.to_string(),
            healthy: status.columns.healthy.clone(),
            version: spec.job_version.to_string(),
            deployment: spec.deployment_name.clone(),
            reason: status.columns.reason,
            age: crate::ui::output::age(object, now),
        }
    }

    fn is_over(&self) -> bool {
        self.desired != DesiredStatus::Run.as_str()
            || [ClientStatus::Complete, ClientStatus::Failed, ClientStatus::Lost]
                .iter()
                .any(|status| self.status == status.as_str())
    }

    fn is_bad(&self) -> bool {
        self.healthy == "false"
            || [ClientStatus::Failed, ClientStatus::Lost].iter().any(|bad| self.status == bad.as_str())
    }

    const fn mark(&self, is_bad: bool, is_over: bool) -> char {
        match (is_bad, is_over) {
            (true, _) => '✗',
            (false, true) => '·',
            (false, false) if self.healthy.len() == 4 => '✓',
            (false, false) => '…',
        }
    }

    /// What is wanted of it, where that is not that it runs.
    fn request(&self) -> &'static str {
        let has_ended = [ClientStatus::Complete, ClientStatus::Failed, ClientStatus::Lost]
            .iter()
            .any(|end| self.status == end.as_str());
        match (self.desired.as_str(), has_ended) {
            ("stop", false) => " (is being stopped)",
            ("evict", false) => " (is being evicted)",
            ("stop", true) => " (no longer wanted)",
            ("evict", true) => " (evicted)",
            _ => "",
        }
    }

    fn line(&self, is_canary: bool) -> String {
        let health = match self.healthy.as_str() {
            "true" => "healthy",
            "false" => "unhealthy",
            _ => "no verdict yet",
        };
        let mark = self.mark(self.is_bad(), self.is_over());
        let canary = if is_canary { "  canary" } else { "" };
        let request = self.request();
        let why = if self.is_bad() { format!("  {}", self.reason) } else { String::new() };
        format!(
            "{mark} {}  {}  {}{request}  {health}{canary}  v{}  {}{why}",
            self.name, self.node, self.status, self.version, self.age
        )
    }
}

/// What the tree is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene<'a> {
    /// The job.
    pub(crate) job: &'a Job,
    /// Its newest deployment, if it has one.
    pub(crate) deployment: Option<&'a Deployment>,
    /// Its allocations.
    pub(crate) allocs: &'a [AllocRow],
    /// Now.
    pub(crate) now: Timestamp,
}

/// The tree, line by line.
pub(crate) fn render(scene: Scene<'_>) -> Vec<String> {
    let mut lines = vec![job_line(scene.job)];
    lines.extend(troubles(scene.job).map(|text| format!("   {text}")));
    lines.extend(launches(scene.job).map(|text| format!("   {text}")));
    let mut indent = "";
    if let Some(deployment) = scene.deployment {
        lines.push(format!("└─ {}", deployment_line(deployment, scene.now)));
        indent = "   ";
    }
    let states = scene.deployment.and_then(|one| one.status.as_ref()).map(|status| &status.groups);
    // A template runs none of its groups itself.
    let groups = scene.job.spec.groups.iter().filter(|_| !periodic::is_template(&scene.job.spec));
    let mut by_group: BTreeMap<&str, Vec<&AllocRow>> = groups.map(|group| (group.name.as_str(), Vec::new())).collect();
    for row in scene.allocs {
        by_group.entry(&row.group).or_default().push(row);
    }
    let last = by_group.len();
    for (n, (group, rows)) in by_group.into_iter().enumerate() {
        let (branch, below) = if n + 1 == last { ("└─", "   ") } else { ("├─", "│  ") };
        let state = states.and_then(|all| all.get(group));
        lines.push(format!("{indent}{branch} {}", group_line(group, state, &rows)));
        for line in group_rows(rows, state) {
            lines.push(format!("{indent}{below}{line}"));
        }
    }
    lines
}

fn job_line(job: &Job) -> String {
    let (name, status) = (job.metadata.name.as_deref().unwrap_or_default(), job.status.clone().unwrap_or_default());
    let (phase, columns) = (phase(&status), status.columns);
    let why = if is_reverted(&columns) { format!(": {}", columns.message) } else { String::new() };
    format!(
        "djob/{name}  {}  {phase}  version {}  running {}  {}{why}",
        job.spec.r#type, columns.version, columns.running, columns.reason
    )
}

/// The phase as people read it: a batch job that is dead because all of it is complete is complete.
pub(crate) fn phase(status: &JobStatus) -> String {
    let is_complete = status
        .conditions
        .iter()
        .any(|one| (one.r#type, one.status) == (JobConditionType::Complete, ConditionStatus::True));
    match status.phase {
        JobPhase::Dead if is_complete => "complete".to_owned(),
        phase => phase.to_string(),
    }
}

/// Whether another version than the spec's runs, for good: that stands in the first line.
fn is_reverted(columns: &JobColumns) -> bool {
    columns.reason == JobReason::AutoReverted.as_str()
}

/// What a periodic or parameterized job made so far, and makes next.
fn launches(job: &Job) -> impl Iterator<Item = String> + '_ {
    let status = job.status.as_ref();
    let children = status.and_then(|status| status.children).map(|children| {
        format!("children: {} pending, {} running, {} dead", children.pending, children.running, children.dead)
    });
    let times = [
        ("last launch", status.and_then(|status| status.last_launch)),
        ("last launch left out", status.and_then(|status| status.last_skipped_launch)),
        ("next launch", status.and_then(|status| status.next_launch)),
    ];
    let times = times.into_iter().filter_map(|(what, at)| Some(format!("{what}: {}", at?)));
    children.into_iter().chain(times)
}

/// What the job's conditions say that a person should read.
fn troubles(job: &Job) -> impl Iterator<Item = String> + '_ {
    use drover_api::condition::ConditionStatus::{False, True};
    use drover_api::job::JobConditionType::{Placed, Reverted, Services, Stalled};
    let conditions = job.status.iter().flat_map(|status| &status.conditions);
    let telling = conditions
        .filter(|one| matches!((one.r#type, one.status), (Stalled | Reverted, True) | (Placed | Services, False)));
    let told = job.status.iter().map(|status| &status.columns).find(|columns| is_reverted(columns));
    let news = telling.filter(move |one| told.is_none_or(|columns| columns.message != one.message));
    let mut texts: Vec<String> = news.map(|one| format!("{}: {}", one.r#type, one.message)).collect();
    texts.dedup();
    texts.into_iter()
}

fn deployment_line(deployment: &Deployment, now: Timestamp) -> String {
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    let status = deployment.status.clone().unwrap_or_default();
    let mut line = format!(
        "ddep/{name}  version {}  {}  healthy {}/{}",
        deployment.spec.job_version, status.phase, status.columns.healthy, status.columns.desired
    );
    if status.columns.promoted != "-" {
        // Writing to a String cannot fail.
        write!(line, "  promoted {}", status.columns.promoted).ok();
    }
    let by = status.groups.values().filter_map(|state| state.require_progress_by).min();
    if let Some(by) = by.filter(|_| status.phase.is_active() && status.phase != DeploymentPhase::Paused) {
        write!(line, "  deadline in {}", span(by.duration_since(now).as_secs())).ok();
    }
    let telling = status.conditions.first().filter(|_| status.phase != DeploymentPhase::Successful);
    if let Some(condition) = telling.filter(|one| one.reason.as_str() != "InProgress") {
        write!(line, "\n   {}: {}", condition.reason, condition.message).ok();
    }
    line
}

fn group_line(group: &str, state: Option<&GroupState>, rows: &[&AllocRow]) -> String {
    let n_live = rows.iter().filter(|row| !row.is_over()).count();
    let healthy = rows.iter().filter(|row| !row.is_over() && row.healthy == "true").count();
    let Some(state) = state else {
        return format!("group {group}  {}  {healthy}/{n_live} healthy", bar(healthy, n_live));
    };
    let whole = |n: i64| usize::try_from(n).unwrap_or(0);
    let (of, done) = (whole(state.desired_total), whole(state.healthy_allocs));
    let mut line = format!(
        "group {group}  {}  {done}/{of} healthy  {} placed  {} unhealthy",
        bar(done, of),
        state.placed_allocs,
        state.unhealthy_allocs
    );
    if state.desired_canaries > 0 {
        let promoted = if state.promoted { "promoted" } else { "not promoted" };
        let canaries = if state.desired_canaries == 1 { "canary" } else { "canaries" };
        write!(line, "  {} {canaries}, {promoted}", state.desired_canaries).ok();
    }
    line
}

fn bar(done: usize, of: usize) -> String {
    let filled = (done.min(of) * BAR).checked_div(of).unwrap_or(0);
    format!("{}{}", "█".repeat(filled), "░".repeat(BAR - filled))
}

/// The rows that matter most: what is bad, what is on its way, what runs, and what is over.
fn group_rows(mut rows: Vec<&AllocRow>, state: Option<&GroupState>) -> Vec<String> {
    let is_canary = |row: &AllocRow| {
        state.is_some_and(|state| !state.promoted && state.placed_canaries.iter().any(|name| **name == *row.name))
    };
    let rank = |row: &AllocRow| match (row.is_bad(), row.is_over(), row.healthy == "true") {
        (true, false, _) => 0,
        (false, false, false) => 1,
        (false, false, true) => 2,
        (true, true, _) => 3,
        (false, true, _) => 4,
    };
    rows.sort_by(|a, b| {
        let by_rank = (rank(a), !is_canary(a)).cmp(&(rank(b), !is_canary(b)));
        by_rank.then_with(|| natural::order(&a.name, &b.name))
    });
    let rest = rows.len().saturating_sub(SHOWN);
    let shown = rows.len() - rest;
    let mut lines: Vec<String> = rows[..shown]
        .iter()
        .enumerate()
        .map(|(n, row)| format!("{} {}", if n + 1 == rows.len() { "└─" } else { "├─" }, row.line(is_canary(row))))
        .collect();
    if rest > 0 {
        lines.push(format!("└─ and {rest} more; -o wide lists all"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    fn row(n: usize, status: &str, healthy: &str) -> AllocRow {
        AllocRow {
            name: format!("web-api-{n}-9d2e41aa"),
            group: "api".into(),
            node: "n-1".into(),
            desired: "run".into(),
            status: status.into(),
            healthy: healthy.into(),
            version: "3".into(),
            deployment: "web-3f1c77d0".into(),
            reason: "TaskFailed".into(),
            age: "32s".into(),
        }
    }

    fn job() -> Job {
        serde_json::from_value(json!({
            "metadata": { "name": "web", "namespace": "shop" },
            "spec": { "groups": [{ "name": "api", "count": 3, "tasks": [{ "name": "t", "driver": "mock" }] }] },
            "status": { "phase": "running", "columns": { "running": "3/3", "version": "3", "reason": "DeploymentRunning" } },
        }))
        .expect("a job")
    }

    fn deployment() -> Deployment {
        serde_json::from_value(json!({
            "metadata": { "name": "web-3f1c77d0" },
            "spec": { "jobName": "web", "jobUID": "u", "jobVersion": 3 },
            "status": {
                "phase": "running", "columns": { "healthy": "1", "desired": "3", "promoted": "0/1" },
                "groups": { "api": { "desiredTotal": 3, "desiredCanaries": 1, "placedCanaries": ["web-api-0-9d2e41aa"], "placedAllocs": 2, "healthyAllocs": 1,
                    "unhealthyAllocs": 1, "requireProgressBy": "2026-01-01T00:09:12Z" } },
                "conditions": [{ "type": "Ready", "status": "False", "reason": "AwaitingPromotion", "observedGeneration": 1,
                    "lastTransitionTime": "2026-01-01T00:00:00Z", "message": "1 of 3 allocations are healthy; canaries wait to be promoted" }],
            },
        }))
        .expect("a deployment")
    }

    #[test]
    fn a_roll_out_is_one_tree() {
        let allocs = [row(0, "running", "true"), row(1, "pending", "-"), row(2, "failed", "false")];
        let now = "2026-01-01T00:00:00Z".parse().expect("a time");
        let lines = render(Scene { job: &job(), deployment: Some(&deployment()), allocs: &allocs, now });
        expect![[r"
            djob/web  service  running  version 3  running 3/3  DeploymentRunning
            └─ ddep/web-3f1c77d0  version 3  running  healthy 1/3  promoted 0/1  deadline in 9m12s
               AwaitingPromotion: 1 of 3 allocations are healthy; canaries wait to be promoted
               └─ group api  ██████░░░░░░░░░░░░░░  1/3 healthy  2 placed  1 unhealthy  1 canary, not promoted
                  ├─ … web-api-1-9d2e41aa  n-1  pending  no verdict yet  v3  32s
                  ├─ ✓ web-api-0-9d2e41aa  n-1  running  healthy  canary  v3  32s
                  └─ ✗ web-api-2-9d2e41aa  n-1  failed  unhealthy  v3  32s  TaskFailed"]]
        .assert_eq(&lines.join("\n"));
    }

    #[test]
    fn what_is_wanted_of_an_allocation_is_said_as_it_is_meant() {
        let line =
            |desired: &str, status: &str| AllocRow { desired: desired.into(), ..row(0, status, "-") }.line(false);
        for (desired, status, words) in [
            ("stop", "running", "running (is being stopped)"),
            ("evict", "running", "running (is being evicted)"),
            ("stop", "failed", "failed (no longer wanted)"),
            ("evict", "complete", "complete (evicted)"),
            ("run", "failed", "failed  no verdict"),
        ] {
            assert!(line(desired, status).contains(words), "{}", line(desired, status));
        }
    }

    #[test]
    fn allocations_stand_in_the_order_in_which_people_count() {
        let allocs = [row(10, "running", "true"), row(2, "running", "true")];
        let lines = render(Scene { job: &job(), deployment: None, allocs: &allocs, now: Timestamp::UNIX_EPOCH });
        assert!(lines[2].contains("web-api-2-") && lines[3].contains("web-api-10-"), "{lines:?}");
    }

    #[test]
    fn the_first_line_says_what_runs_after_a_revert_and_that_a_batch_job_is_complete() {
        let lines = |status: serde_json::Value| {
            let mut one = job();
            one.status = serde_json::from_value(status).expect("a status");
            render(Scene { job: &one, deployment: None, allocs: &[], now: Timestamp::UNIX_EPOCH })
        };
        let condition = |kind: &str, reason: &str, message: &str| {
            json!({ "type": kind, "status": "True", "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
        };
        let says = "version 2 runs stable version 0 again and is healthy";
        let reverted = lines(json!({ "phase": "running",
            "columns": { "running": "3/3", "version": "2", "reason": "AutoReverted", "message": says },
            "conditions": [condition("Stalled", "DeploymentFailed", says), condition("Reverted", "AutoReverted", says)] }));
        assert_eq!(reverted[0], format!("djob/web  service  running  version 2  running 3/3  AutoReverted: {says}"));
        assert!(reverted[1].contains("group api"), "said once: {reverted:?}");
        let done = lines(json!({ "phase": "dead",
            "columns": { "running": "1/1 complete", "version": "0", "reason": "Completed" },
            "conditions": [condition("Complete", "Completed", "all allocations are complete")] }));
        assert_eq!(done[0], "djob/web  service  complete  version 0  running 1/1 complete  Completed");
    }

    #[test]
    fn a_large_job_shows_what_matters_most() {
        let mut allocs: Vec<AllocRow> = (1..=500).map(|n| row(n, "running", "true")).collect();
        allocs[400].healthy = "false".into();
        let now = Timestamp::UNIX_EPOCH;
        let lines = render(Scene { job: &job(), deployment: None, allocs: &allocs, now });
        assert_eq!((lines.len(), &lines[lines.len() - 1]), (23, &"   └─ and 480 more; -o wide lists all".to_owned()));
        assert!(lines[2].contains("✗ web-api-401"), "{lines:?}");
    }
}
