//! What a job's status says of it, in each state that it can be in.

use drover_api::allocation::{AllocatedResources, DesiredTransition, FollowUp};
use drover_api::deployment::GroupState;
use drover_api::job::EvalTrigger;
use serde_json::{Value, json};

use super::*;
use crate::definition::Definition;
use crate::ids::{JobKey, Uid};
use crate::model::Health;

fn job(kind: &str, count: i64) -> Job {
    let spec = json!({ "type": kind, "groups": [{ "name": "g", "count": count, "tasks": [{ "name": "t", "driver": "mock" }] }] });
    let definition = Definition::new(&serde_json::from_value(spec).unwrap(), "web");
    Job {
        key: JobKey::new("ns", "web"),
        uid: Uid::from("u"),
        generation: 1,
        version: 0,
        stopped: false,
        counts: BTreeMap::from([("g".to_owned(), count)]),
        definition,
    }
}

fn alloc(index: i64, client: ClientStatus) -> Alloc {
    Alloc {
        key: JobKey::new("ns", format!("web-g-{index}")),
        uid: Uid::from(format!("{index}")),
        job: JobKey::new("ns", "web"),
        job_uid: Uid::from("u"),
        job_version: 0,
        group: "g".into(),
        index,
        node: "n".into(),
        desired: DesiredStatus::Run,
        is_superseded: false,
        client,
        transition: DesiredTransition::default(),
        previous: None,
        follow_up: None,
        resources: Arc::new(AllocatedResources::default()),
        canary: false,
        deployment: None,
        health: (client == ClientStatus::Running).then_some(Health {
            is_healthy: true,
            deployment: None,
            at: Timestamp::UNIX_EPOCH,
        }),
        health_index: 0,
        states: Vec::new(),
        best_score: None,
        task_starts: Vec::new(),
        ran_successfully: client == ClientStatus::Complete,
        last_event_at: Timestamp::UNIX_EPOCH,
        tracker: None,
        is_deleting: false,
        has_ended: false,
        unmounted: std::collections::BTreeSet::new(),
        host_volumes: std::collections::BTreeMap::new(),
        created_at: Timestamp::UNIX_EPOCH,
    }
}

/// All that a job's status is made of; at first nothing but a job of one service.
#[derive(Default)]
struct Case {
    job: Option<Job>,
    is_ending: bool,
    allocs: Vec<Alloc>,
    is_evaluating: bool,
    failed: BTreeMap<String, AllocMetric>,
    queued: BTreeMap<String, i64>,
    held_back: i64,
    deployment: Option<Deployment>,
    reverted: Option<Reverted>,
    failure: Option<AllocFailure>,
    /// For so many seconds.
    blocked_for: Option<i64>,
    violations: Vec<Violation>,
    children: ChildrenSummary,
    scaled: Option<(&'static str, i64, i64)>,
}

impl Case {
    fn of(job: Job) -> Self {
        Self { job: Some(job), ..Self::default() }
    }

    fn with(self, allocs: Vec<Alloc>) -> Self {
        Self { allocs, ..self }
    }

    fn verdict(self) -> JobVerdict {
        let (job, now) = (self.job.unwrap_or_else(|| job("service", 1)), Timestamp::from_second(10_000).unwrap());
        let allocs: Vec<_> = self.allocs.into_iter().map(Arc::new).collect();
        judge(Input {
            job: &job,
            is_ending: self.is_ending,
            allocs: &allocs,
            is_evaluating: self.is_evaluating,
            failed: &self.failed,
            queued: &self.queued,
            held_back: self.held_back,
            deployment: self.deployment.as_ref(),
            reverted: self.reverted,
            stopper: None,
            failure: self.failure.as_ref(),
            blocked_since: self.blocked_for.map(|seconds| now - SignedDuration::from_secs(seconds)),
            violations: &self.violations,
            children: self.children,
            scaled: self.scaled,
            now,
        })
    }

    /// Phase, column, and the conditions that are True but for Placed.
    fn check(self, (phase, running): (JobPhase, &str), wanted: &[(Type, Reason)]) {
        let verdict = self.verdict();
        let holding: Vec<_> = verdict
            .conditions
            .iter()
            .filter(|condition| condition.status == ConditionStatus::True && condition.r#type != Type::Placed)
            .map(|condition| (condition.r#type, condition.reason))
            .collect();
        assert_eq!((verdict.phase, verdict.running.as_str(), holding.as_slice()), (phase, running, wanted));
    }

    /// Reason and message of the columns.
    fn told(self) -> String {
        let verdict = self.verdict();
        format!("{}: {}", verdict.reason.map_or("-", Reason::as_str), verdict.message)
    }

    /// What one condition says; none: there is no such condition.
    fn says(self, kind: Type) -> Option<String> {
        let conditions = self.verdict().conditions;
        let found = conditions.into_iter().find(|condition| condition.r#type == kind)?;
        Some(format!("{:?} {}: {}", found.status, found.reason.as_str(), found.message))
    }
}

fn running(index: i64) -> Alloc {
    alloc(index, ClientStatus::Running)
}

fn starting(index: i64) -> Alloc {
    Alloc { health: None, ..running(index) }
}

/// Why no node is taken: none of two has enough memory.
fn no_room() -> BTreeMap<String, AllocMetric> {
    let metric = AllocMetric {
        nodes_evaluated: 2,
        nodes_exhausted: 2,
        dimension_exhausted: BTreeMap::from([("memory".to_owned(), 2)]),
        ..AllocMetric::default()
    };
    BTreeMap::from([("g".to_owned(), metric)])
}

fn failure() -> AllocFailure {
    AllocFailure {
        alloc: "web-g-0".to_owned(),
        node: "n".to_owned(),
        task: TaskFailure {
            task: "t".to_owned(),
            at: Timestamp::UNIX_EPOCH,
            cause: "ended with exit code 3".to_owned(),
            remedy: "look".to_owned(),
        },
    }
}

/// Of version 1, with this many canaries.
fn deployment(phase: DeploymentPhase, canaries: i64, promoted: bool) -> Deployment {
    let state = GroupState { desired_canaries: canaries, promoted, desired_total: 1, ..GroupState::default() };
    Deployment {
        key: JobKey::new("ns", "web-d1"),
        uid: Uid::from("d"),
        job: JobKey::new("ns", "web"),
        job_uid: Uid::from("u"),
        job_version: 1,
        phase,
        groups: BTreeMap::from([("g".to_owned(), state)]),
        eval_priority: 0,
        judgements: BTreeMap::new(),
        created_at: Timestamp::UNIX_EPOCH,
    }
}

fn violation(code: &'static str) -> Violation {
    Violation { code, field: "spec.x".to_owned(), message: "is wrong".to_owned() }
}

/// The job of a spec with these fields more.
fn job_with(mut spec: Value, fields: &Value) -> Job {
    for (field, value) in fields.as_object().unwrap() {
        spec[field] = value.clone();
    }
    Job { definition: Definition::new(&serde_json::from_value(spec).unwrap(), "web"), ..job("batch", 1) }
}

/// A job that is launched each day.
fn nightly() -> Job {
    let groups = json!([{ "name": "g", "tasks": [{ "name": "t", "driver": "mock" }] }]);
    job_with(json!({ "type": "batch", "groups": groups }), &json!({ "periodic": { "crons": ["@daily"] } }))
}

fn stopped(job: Job) -> Job {
    Job { stopped: true, ..job }
}

#[test]
fn a_service_is_ready_when_all_are_healthy() {
    let of = |allocs| Case::of(job("service", 2)).with(allocs);
    of(vec![running(0)]).check((JobPhase::Running, "1/2"), &[(Type::Reconciling, Reason::Placing)]);
    of(vec![running(0), running(1)]).check((JobPhase::Running, "2/2"), &[(Type::Ready, Reason::AllHealthy)]);
    of(vec![running(0), starting(1)]).check((JobPhase::Running, "2/2"), &[(Type::Reconciling, Reason::Placing)]);
}

#[test]
fn a_service_with_all_healthy_is_under_way_while_something_is_to_come() {
    let healthy = || Case::default().with(vec![running(0)]);
    let placing = [(Type::Reconciling, Reason::Placing)];
    Case { held_back: 1, ..healthy() }.check((JobPhase::Running, "1/1"), &placing);
    Case { is_evaluating: true, ..healthy() }.check((JobPhase::Running, "1/1"), &placing);
    let rolling = [(Type::Reconciling, Reason::DeploymentRunning)];
    for (phase, wanted) in [
        (DeploymentPhase::Running, &rolling[..]),
        (DeploymentPhase::Paused, &rolling[..]),
        (DeploymentPhase::Successful, &[(Type::Ready, Reason::AllHealthy)][..]),
        (DeploymentPhase::Cancelled, &[(Type::Ready, Reason::AllHealthy)][..]),
    ] {
        Case { deployment: Some(deployment(phase, 0, false)), ..healthy() }.check((JobPhase::Running, "1/1"), wanted);
    }
}

#[test]
fn one_that_is_being_stopped_counts_until_it_has_ended() {
    let leaving = Alloc { desired: DesiredStatus::Stop, ..running(1) };
    let case = |leaving: Alloc| Case::default().with(vec![running(0), leaving]);
    case(leaving.clone()).check((JobPhase::Running, "1/1"), &[(Type::Reconciling, Reason::Placing)]);
    let ready = [(Type::Ready, Reason::AllHealthy)];
    case(Alloc { has_ended: true, ..leaving.clone() }).check((JobPhase::Running, "1/1"), &ready);
    case(Alloc { client: ClientStatus::Complete, ..leaving }).check((JobPhase::Running, "1/1"), &ready);
}

#[test]
fn a_roll_out_says_which_version_comes_and_whether_a_promotion_is_waited_for() {
    let told = |canaries, promoted| {
        let deployment = Some(deployment(DeploymentPhase::Running, canaries, promoted));
        Case { deployment, ..Case::default() }.with(vec![running(0)]).told()
    };
    let rolls = "DeploymentRunning: deployment web-d1 rolls version 1 out";
    assert_eq!(told(0, false), rolls);
    assert_eq!(told(1, true), rolls);
    assert_eq!(told(1, false), format!("{rolls}; its canaries wait to be promoted"));
}

#[test]
fn a_failed_deployment_says_where_it_can_be_seen_or_why_it_failed() {
    let failed = |failure| {
        let deployment = Some(deployment(DeploymentPhase::Failed, 0, false));
        Case { deployment, failure, ..Case::default() }.with(vec![running(0)])
    };
    assert_eq!(
        failed(None).told(),
        "DeploymentFailed: deployment web-d1 failed; its progress stands in `drover deployment status web-d1`; change the job to try again"
    );
    assert_eq!(
        failed(Some(failure())).told(),
        "DeploymentFailed: deployment web-d1 failed: allocation web-g-0 on n: task t ended with exit code 3; look; change the job to try again"
    );
    failed(None).check((JobPhase::Running, "1/1"), &[(Type::Stalled, Reason::DeploymentFailed)]);
}

#[test]
fn a_failure_is_final_only_after_it_was_evaluated() {
    let failed = || alloc(0, ClientStatus::Failed);
    let rescheduling = [(Type::Reconciling, Reason::Rescheduling)];
    let of = |allocs| Case::default().with(allocs);
    Case { is_evaluating: true, ..of(vec![failed()]) }.check((JobPhase::Pending, "0/1"), &rescheduling);
    let follow_up = Some(FollowUp { trigger: EvalTrigger::AllocReschedule, at: Timestamp::UNIX_EPOCH });
    of(vec![Alloc { follow_up, ..failed() }]).check((JobPhase::Pending, "0/1"), &rescheduling);
    let exhausted = [(Type::Stalled, Reason::ReschedulesExhausted)];
    of(vec![failed()]).check((JobPhase::Dead, "0/1"), &exhausted);
    // The deployment that runs decides about its own, and about no other's.
    let of_deployment = Alloc { deployment: Some("web-d1".into()), ..failed() };
    let rolling = |alloc| {
        let deployment = Some(deployment(DeploymentPhase::Running, 0, false));
        Case { deployment, ..of(vec![alloc]) }
    };
    rolling(of_deployment.clone()).check((JobPhase::Pending, "0/1"), &rescheduling);
    rolling(failed()).check((JobPhase::Dead, "0/1"), &exhausted);
    // What is replaced holds no slot any more.
    let next = Alloc { previous: Some("web-g-0".into()), ..running(1) };
    of(vec![failed(), next]).check((JobPhase::Running, "1/1"), &[(Type::Ready, Reason::AllHealthy)]);
}

#[test]
fn how_many_have_failed_for_good_is_told_with_one_or_several() {
    let failed = |n: i64| (0..n).map(|index| alloc(index, ClientStatus::Failed)).collect();
    let rest =
        "failed and will not be rescheduled: allocation web-g-0; change the job, or delete the allocation to try again";
    assert_eq!(Case::default().with(failed(1)).told(), format!("ReschedulesExhausted: 1 allocation {rest}"));
    assert_eq!(
        Case::of(job("service", 2)).with(failed(2)).told(),
        format!("ReschedulesExhausted: 2 allocations {rest}")
    );
    assert_eq!(Case::of(job("batch", 1)).with(failed(1)).told(), format!("Failed: 1 allocation {rest}"));
}

#[test]
fn a_batch_job_is_ready_when_it_is_complete() {
    let of = |allocs| Case::of(job("batch", 1)).with(allocs);
    of(vec![running(0)]).check((JobPhase::Running, "1/1"), &[(Type::Reconciling, Reason::Running)]);
    of(vec![alloc(0, ClientStatus::Complete)]).check(
        (JobPhase::Dead, "1/1 complete"),
        &[(Type::Ready, Reason::Completed), (Type::Complete, Reason::Completed)],
    );
    let failed = [(Type::Stalled, Reason::Failed), (Type::Failed, Reason::Failed)];
    of(vec![alloc(0, ClientStatus::Failed)]).check((JobPhase::Dead, "0/1"), &failed);
    assert_eq!(
        of(vec![alloc(0, ClientStatus::Failed)]).says(Type::Failed).as_deref(),
        Some("True Failed: allocation web-g-0 failed")
    );
    of(vec![alloc(0, ClientStatus::Pending)])
        .check((JobPhase::Running, "0/1"), &[(Type::Reconciling, Reason::Placing)]);
}

#[test]
fn a_batch_job_counts_what_is_complete_once_and_says_so_when_nothing_runs_any_more() {
    let complete = |index| alloc(index, ClientStatus::Complete);
    let of = |count, allocs| Case::of(job("batch", count)).with(allocs);
    of(2, vec![complete(0), running(1)]).check((JobPhase::Running, "1/2"), &[(Type::Reconciling, Reason::Running)]);
    // One more than it asks for runs still.
    let done = [(Type::Complete, Reason::Completed)];
    of(1, vec![complete(0), running(1)]).check((JobPhase::Running, "1/1"), &done);
    let both = [(Type::Ready, Reason::Completed), (Type::Complete, Reason::Completed)];
    of(2, vec![complete(0), complete(1)]).check((JobPhase::Dead, "2/2 complete"), &both);
    // A restart on another node took the place of the first one.
    let again = Alloc { previous: Some("web-g-0".into()), ..alloc(1, ClientStatus::Pending) };
    of(1, vec![complete(0), again]).check((JobPhase::Running, "0/1"), &[(Type::Reconciling, Reason::Placing)]);
    of(0, vec![]).check((JobPhase::Dead, "0/0"), &[(Type::Ready, Reason::Completed)]);
    of(1, vec![]).check((JobPhase::Pending, "0/1"), &[(Type::Reconciling, Reason::Placing)]);
}

#[test]
fn a_system_job_runs_until_it_is_stopped_and_wants_one_for_each_node_it_has_or_waits_for() {
    let on = |node: &str, index| Alloc { node: node.into(), ..running(index) };
    let two = || vec![on("a", 0), on("b", 0)];
    Case::of(job("system", 1)).with(vec![]).check((JobPhase::Running, "0/0"), &[(Type::Ready, Reason::AllHealthy)]);
    Case::of(job("system", 1)).with(two()).check((JobPhase::Running, "2/2"), &[(Type::Ready, Reason::AllHealthy)]);
    let queued = BTreeMap::from([("g".to_owned(), 3)]);
    let waits = Case { queued, failed: no_room(), ..Case::of(job("system", 1)) }.with(two());
    waits.check((JobPhase::Running, "2/5"), &[(Type::Reconciling, Reason::Placing)]);
    let leaving: Vec<_> = two().into_iter().map(|alloc| Alloc { desired: DesiredStatus::Stop, ..alloc }).collect();
    Case::of(stopped(job("system", 1)))
        .with(leaving)
        .check((JobPhase::Running, "0/0"), &[(Type::Reconciling, Reason::Stopping), (Type::Stopped, Reason::Stopped)]);
    Case::of(stopped(job("system", 1)))
        .check((JobPhase::Dead, "0/0"), &[(Type::Ready, Reason::Stopped), (Type::Stopped, Reason::Stopped)]);
}

#[test]
fn a_stopped_job_is_dead_when_nothing_is_left() {
    let stopping = vec![Alloc { desired: DesiredStatus::Stop, ..running(0) }];
    let under_way = [(Type::Reconciling, Reason::Stopping), (Type::Stopped, Reason::Stopped)];
    Case::of(stopped(job("service", 1))).with(stopping).check((JobPhase::Running, "0/0"), &under_way);
    let ended = [(Type::Ready, Reason::Stopped), (Type::Stopped, Reason::Stopped)];
    Case::of(stopped(job("service", 1))).check((JobPhase::Dead, "0/0"), &ended);
    assert_eq!(Case::of(stopped(job("service", 1))).says(Type::Placed), None, "nothing of it wants a node");
    let ending = Case { is_ending: true, ..Case::of(stopped(job("service", 1))) };
    assert_eq!(ending.says(Type::Ready).as_deref(), Some("False Stopped: the job is being deleted"));
}

#[test]
fn a_job_that_finds_no_place_waits_with_the_reason_and_needs_a_human_after_five_minutes() {
    let blocked = |seconds| Case { failed: no_room(), blocked_for: Some(seconds), ..Case::default() };
    let why = "group g: memory exhausted on 2 of 2 nodes; ";
    blocked(299).check((JobPhase::Pending, "0/1"), &[(Type::Reconciling, Reason::Placing)]);
    let told = blocked(299).told();
    assert!(told.starts_with(&format!("Placing: {why}")), "{told}");
    let placed = blocked(299).says(Type::Placed).unwrap();
    assert!(placed.starts_with(&format!("False NotPlaced: {why}")), "{placed}");
    let wakes = |seconds| blocked(seconds).verdict().wake_at.map(Timestamp::as_second);
    assert_eq!(wakes(299), Some(10_001), "a second later it says more");
    blocked(300).check((JobPhase::Pending, "0/1"), &[(Type::Stalled, Reason::PlacementBlocked)]);
    let told = blocked(300).told();
    assert!(told.starts_with(&format!("PlacementBlocked: {why}")), "{told}");
    assert_eq!(wakes(300), None);
    let placed = Case::default().with(vec![running(0)]).says(Type::Placed);
    assert_eq!(placed.as_deref(), Some("True AllPlaced: every wanted allocation has a node"));
}

#[test]
fn the_reasons_of_several_groups_are_told_one_after_the_other() {
    let metric = no_room().remove("g").unwrap();
    let failed = BTreeMap::from([("a".to_owned(), metric.clone()), ("b".to_owned(), metric)]);
    let told = Case { failed, ..Case::default() }.told();
    assert!(told.starts_with("Placing: group a: memory exhausted on 2 of 2 nodes; "), "{told}");
    assert!(told.contains("; group b: memory exhausted on 2 of 2 nodes; "), "{told}");
}

#[test]
fn what_is_wrong_with_the_spec_is_told_and_nothing_of_it_wants_a_node() {
    let wrong = |violations: &[&'static str]| Case {
        violations: violations.iter().map(|code| violation(code)).collect(),
        ..Case::default()
    };
    wrong(&["Count"]).check((JobPhase::Pending, "0/1"), &[(Type::Stalled, Reason::InvalidSpec)]);
    assert_eq!(wrong(&["Count"]).told(), "InvalidSpec: spec.x: is wrong (Count)");
    assert_eq!(wrong(&["Count"]).says(Type::Placed), None);
    let no_gateway = "NoGateway";
    wrong(&[no_gateway]).check((JobPhase::Pending, "0/1"), &[(Type::Stalled, Reason::NoGateway)]);
    assert_eq!(
        wrong(&[no_gateway]).says(Type::Placed),
        Some(format!("False NoGateway: spec.x: is wrong ({no_gateway})"))
    );
    let both = wrong(&[no_gateway, "Count"]);
    both.check((JobPhase::Pending, "0/1"), &[(Type::Stalled, Reason::InvalidSpec)]);
}

#[test]
fn a_template_is_ready_when_it_is_armed_and_dead_when_it_is_stopped() {
    let whole = |fields: Value| {
        let groups = json!([{ "name": "g", "tasks": [{ "name": "t", "driver": "mock" }] }]);
        job_with(json!({ "type": "batch", "groups": groups }), &fields)
    };
    let nightly = || whole(json!({ "periodic": { "crons": ["@daily"] } }));
    let armed = [(Type::Ready, Reason::Waiting), (Type::Armed, Reason::Waiting)];
    Case::of(nightly()).check((JobPhase::Running, "0/0"), &armed);
    assert_eq!(Case::of(nightly()).told(), "Waiting: it is launched at the times of its schedule");
    let dispatched = || whole(json!({ "parameterized": {} }));
    Case::of(dispatched()).check((JobPhase::Running, "0/0"), &armed);
    assert_eq!(Case::of(dispatched()).told(), "Waiting: it waits to be dispatched");
    let off = || whole(json!({ "periodic": { "crons": ["@daily"], "enabled": false } }));
    Case::of(off()).check((JobPhase::Running, "0/0"), &[(Type::Ready, Reason::ScheduleOff)]);
    assert!(Case::of(off()).says(Type::Armed).unwrap().starts_with("False ScheduleOff: its schedule is switched off"));
    let ended = [(Type::Ready, Reason::Stopped), (Type::Stopped, Reason::Stopped)];
    Case::of(stopped(nightly())).check((JobPhase::Dead, "0/0"), &ended);
}

#[test]
fn a_template_counts_what_it_has_launched_that_is_not_over() {
    let children = ChildrenSummary { pending: 2, running: 3, ..ChildrenSummary::default() };
    Case { children, ..Case::of(nightly()) }
        .check((JobPhase::Running, "3/5"), &[(Type::Ready, Reason::Waiting), (Type::Armed, Reason::Waiting)]);
}

#[test]
fn a_template_that_cannot_be_launched_is_not_armed_and_says_why() {
    let wrong = |violations: &[&'static str]| Case {
        violations: violations.iter().map(|code| violation(code)).collect(),
        ..Case::of(nightly())
    };
    let no_gateway = "NoGateway";
    let told = format!("spec.x: is wrong ({no_gateway})");
    for (violations, reason, armed) in [
        (vec!["PeriodicSpec"], Reason::InvalidCron, "the spec is invalid"),
        (vec!["PeriodicSpec", "Count"], Reason::InvalidSpec, "the spec is invalid"),
        (vec![no_gateway], Reason::NoGateway, told.as_str()),
    ] {
        wrong(&violations).check((JobPhase::Running, "0/0"), &[(Type::Stalled, reason)]);
        let said = wrong(&violations).says(Type::Armed);
        assert_eq!(said, Some(format!("False {}: {armed}", reason.as_str())), "{violations:?}");
    }
}

#[test]
fn each_group_says_how_many_of_it_are_in_which_status_and_wait_for_a_node() {
    let all = [
        ClientStatus::Pending,
        ClientStatus::Running,
        ClientStatus::Complete,
        ClientStatus::Failed,
        ClientStatus::Lost,
        ClientStatus::Unknown,
    ];
    // One, two, three … of each.
    let mut allocs = Vec::new();
    for (client, n) in all.into_iter().zip(1..) {
        allocs.extend((0..n).map(|index| alloc(index, client)));
    }
    let other = Alloc { group: "gone".into(), ..running(0) };
    let queued = BTreeMap::from([("g".to_owned(), 7), ("new".to_owned(), 1)]);
    let summary = Case { queued, ..Case::default() }.with([allocs, vec![other]].concat()).verdict().summary;
    let whole = GroupSummary { starting: 1, running: 2, complete: 3, failed: 4, lost: 5, unknown: 6, queued: 7 };
    let gone = GroupSummary { running: 1, ..GroupSummary::default() };
    let new = GroupSummary { queued: 1, ..GroupSummary::default() };
    assert_eq!(summary, BTreeMap::from([("g", whole), ("gone", gone), ("new", new)].map(|(k, v)| (k.to_owned(), v))));
    let idle = Case::default().verdict().summary;
    assert_eq!(idle, BTreeMap::from([("g".to_owned(), GroupSummary::default())]), "a group without allocations too");
}

#[test]
fn the_last_failure_is_told_with_its_cause_and_what_helps_while_the_job_is_not_there() {
    let why = "allocation web-g-0 on n: task t ended with exit code 3; look";
    let told = |alloc| Case { failure: Some(failure()), ..Case::default() }.with(vec![alloc]).told();
    assert_eq!(
        told(Alloc { health: None, ..alloc(0, ClientStatus::Pending) }),
        format!("Placing: allocations are being placed, started or replaced; {why}")
    );
    assert_eq!(
        told(alloc(0, ClientStatus::Failed)),
        format!(
            "ReschedulesExhausted: 1 allocation failed and will not be rescheduled: {why}; change the job, or delete the allocation to try again"
        )
    );
    assert_eq!(told(running(0)), "AllHealthy: all desired allocations are running and healthy");
    let waiting = Case { is_evaluating: true, failure: Some(failure()), ..Case::default() };
    assert_eq!(
        waiting.with(vec![alloc(0, ClientStatus::Failed)]).told(),
        format!("Rescheduling: failed allocations wait for their reschedule; {why}")
    );
}

#[test]
fn after_a_revert_what_runs_and_how_it_is_and_what_to_do_come_first() {
    let reverted = Some(Reverted { version: 2, restored: 0 });
    let case = |alloc| Case { reverted, failure: Some(failure()), ..Case::default() }.with(vec![alloc]);
    let rest = "because the roll-out of the spec failed (allocation web-g-0 on n: task t ended with exit code 3; look); \
                correct the spec and apply it: unchanged it changes nothing";
    assert_eq!(
        case(running(0)).told(),
        format!("AutoReverted: version 2 runs stable version 0 again and is healthy, {rest}")
    );
    assert_eq!(
        case(starting(0)).told(),
        format!("AutoReverted: version 2 runs stable version 0 again and is not healthy yet, {rest}")
    );
    let holds = [(Type::Stalled, Reason::DeploymentFailed), (Type::Reverted, Reason::AutoReverted)];
    case(running(0)).check((JobPhase::Running, "1/1"), &holds);
}

#[test]
fn while_the_restored_version_is_rolled_out_the_roll_out_is_told() {
    let reverted = Some(Reverted { version: 2, restored: 0 });
    let going = |deployment, is_evaluating| {
        Case { is_evaluating, deployment, reverted, ..Case::default() }.with(vec![running(0)])
    };
    let rolling = Some(deployment(DeploymentPhase::Running, 0, false));
    assert_eq!(going(rolling.clone(), false).told(), "DeploymentRunning: deployment web-d1 rolls version 1 out");
    let holds = |reason| [(Type::Reconciling, reason), (Type::Reverted, Reason::AutoReverted)];
    going(rolling, false).check((JobPhase::Running, "1/1"), &holds(Reason::DeploymentRunning));
    going(None, true).check((JobPhase::Running, "1/1"), &holds(Reason::Placing));
    let stopped = Case { reverted, ..Case::of(stopped(job("service", 1))) };
    assert_eq!(stopped.says(Type::Reverted), None);
}

#[test]
fn a_count_that_is_set_over_the_manifests_is_told() {
    let case = Case { scaled: Some(("g", 5, 2)), ..Case::of(job("service", 5)) };
    assert_eq!(
        case.says(Type::ScaleOverride).as_deref(),
        Some(
            "True ScaleInEffect: spec.scale sets group g to 5, over the 2 of spec.groups; remove spec.scale to use that one"
        )
    );
}

#[test]
fn s_192_the_phase_follows_evaluations_and_allocations() {
    let phase =
        |allocs: Vec<Alloc>, is_evaluating| Case { is_evaluating, ..Case::default() }.with(allocs).verdict().phase;
    let one = |client| alloc(0, client);
    assert_eq!(phase(vec![], true), JobPhase::Pending);
    assert_eq!(phase(vec![], false), JobPhase::Pending, "what it wants is to come");
    assert_eq!(phase(vec![one(ClientStatus::Running)], false), JobPhase::Running);
    assert_eq!(phase(vec![one(ClientStatus::Complete), one(ClientStatus::Lost)], false), JobPhase::Dead);
    assert_eq!(phase(vec![one(ClientStatus::Complete)], true), JobPhase::Pending);
    assert_eq!(Case::of(job("service", 0)).verdict().phase, JobPhase::Dead, "it wants nothing");
    let full = Case { failed: no_room(), ..Case::default() }.with(vec![one(ClientStatus::Lost)]);
    assert_eq!(full.verdict().phase, JobPhase::Pending);
}
