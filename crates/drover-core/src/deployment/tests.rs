//! Cases of `spec/deployments.md` that one look at a deployment decides; those that the scheduler decides stand beside
//! it.

mod progress;
mod request;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::GoDuration;
use drover_api::JobSpec;
use drover_api::allocation::{AllocatedResources, ClientStatus, DesiredStatus, DesiredTransition};
use drover_api::deployment::{
    AllocationHealth, DeploymentDescription as Why, DeploymentPhase as Phase, DeploymentSpec, DeploymentStatus,
    GroupState, Promote, Rollback, RollbackResult,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::request::{DeploymentRequest, RequestRefusal, Short, check_phase};
use super::*;
use crate::definition::Definition;
use crate::ids::{JobKey, Uid};
use crate::model::{Alloc, Deployment, Health};

/// A deployment of version 1 of a job, in which tests change what they need. Times are seconds since its beginning.
struct World {
    job: Value,
    spec: DeploymentSpec,
    status: DeploymentStatus,
    counts: BTreeMap<String, i64>,
    allocs: Vec<Arc<Alloc>>,
    versions: Vec<(i64, bool, String, JobSpec)>,
    latest_eval: u64,
    now: Timestamp,
}

fn at(seconds: f64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_000_000) + SignedDuration::from_secs_f64(seconds)
}

fn duration(text: &str) -> GoDuration {
    serde_json::from_value(json!(text)).expect("a duration")
}

fn spec(release: &str) -> JobSpec {
    let job = json!({ "groups": [
        { "name": "A", "tasks": [{ "name": "t", "driver": "mock", "env": { "RELEASE": release } }] },
        { "name": "B", "tasks": [{ "name": "t", "driver": "mock" }] }] });
    serde_json::from_value(job).expect("a spec")
}

impl World {
    /// Groups with what they want, their canaries and their progress deadline.
    fn new(groups: &[(&str, i64, i64, &str)]) -> Self {
        let state = |desired_total, desired_canaries, deadline| GroupState {
            desired_total,
            desired_canaries,
            progress_deadline: duration(deadline),
            ..GroupState::default()
        };
        let is_canaried = groups.iter().any(|(_, _, canaries, _)| *canaries > 0);
        let description = if is_canaried { Why::NeedsPromotion } else { Why::Running };
        let states = groups.iter().map(|(name, total, canaries, by)| ((*name).into(), state(*total, *canaries, by)));
        let named = |count| {
            groups.iter().map(move |(name, total, _, _)| json!({ "name": name, "count": total * count, "tasks": [{ "name": "t", "driver": "mock" }] })).collect::<Vec<_>>()
        };
        Self {
            job: json!({ "groups": named(1) }),
            spec: DeploymentSpec { job_version: 1, ..DeploymentSpec::default() },
            status: DeploymentStatus { description, groups: states.collect(), ..DeploymentStatus::default() },
            counts: groups.iter().map(|(name, total, _, _)| ((*name).into(), *total)).collect(),
            allocs: Vec::new(),
            versions: vec![(1, false, String::new(), spec("1"))],
            latest_eval: 0,
            now: at(0.0),
        }
    }

    fn group(&mut self, name: &str) -> &mut GroupState {
        self.status.groups.get_mut(name).expect("a group")
    }

    /// An allocation of the deployment, made at its beginning.
    fn alloc(&mut self, group: &str, health: Option<(bool, f64)>) -> String {
        self.alloc_with(group, health, |_| {})
    }

    fn alloc_with(&mut self, group: &str, health: Option<(bool, f64)>, change: impl Fn(&mut Alloc)) -> String {
        let n = self.allocs.len();
        let deployment: Arc<str> = "d".into();
        let mut alloc = Alloc {
            key: JobKey::new("shop", format!("{group}-{n}")),
            uid: Uid::from(format!("uid-{n}")),
            job: JobKey::new("shop", "web"),
            job_uid: Uid::from("job"),
            job_version: 1,
            group: group.into(),
            index: 0,
            node: "n".into(),
            desired: DesiredStatus::Run,
            is_superseded: false,
            client: ClientStatus::Running,
            transition: DesiredTransition::default(),
            previous: None,
            follow_up: None,
            resources: Arc::new(AllocatedResources::default()),
            canary: false,
            deployment: Some(Arc::clone(&deployment)),
            health: health.map(|(is_healthy, seconds)| Health {
                is_healthy,
                deployment: Some(Arc::clone(&deployment)),
                at: at(seconds),
            }),
            health_index: 10,
            states: Vec::new(),
            best_score: None,
            task_starts: Vec::new(),
            ran_successfully: false,
            last_event_at: at(0.0),
            tracker: None,
            is_deleting: false,
            has_ended: false,
            unmounted: std::collections::BTreeSet::new(),
            host_volumes: std::collections::BTreeMap::new(),
            created_at: at(0.0),
        };
        change(&mut alloc);
        let uid = alloc.uid.as_str().to_owned();
        self.allocs.push(Arc::new(alloc));
        uid
    }

    fn canary(&mut self, group: &str, health: Option<(bool, f64)>) -> String {
        self.alloc_with(group, health, |alloc| alloc.canary = true)
    }

    fn change(&mut self, name: &str, change: impl Fn(&mut Alloc)) {
        let alloc = self.allocs.iter_mut().find(|alloc| &*alloc.key.name == name).expect("an allocation");
        change(Arc::make_mut(alloc));
    }

    fn reschedule(&mut self, policy: &Value) {
        for group in self.job["groups"].as_array_mut().expect("groups") {
            group["reschedule"] = policy.clone();
        }
    }

    fn step_at(&mut self, seconds: f64) -> DeploymentStep {
        self.now = at(seconds);
        let definition = Definition::new(&serde_json::from_value(self.job.clone()).expect("a job"), "web");
        let versions: Vec<VersionFacts<'_>> = self
            .versions
            .iter()
            .map(|(number, is_stable, intent, spec)| VersionFacts {
                number: *number,
                is_stable: *is_stable,
                intent,
                spec,
            })
            .collect();
        step(&DeploymentView {
            name: "d",
            generation: 1,
            spec: &self.spec,
            stored: &self.status,
            created_at: at(0.0),
            definition: Some(&definition),
            versions: &versions,
            counts: &self.counts,
            allocs: &self.allocs,
            latest_eval: self.latest_eval,
            now: self.now,
        })
    }

    /// Takes a step, and its status as stored.
    fn advance(&mut self, seconds: f64) -> DeploymentStep {
        let step = self.step_at(seconds);
        self.status = step.status.clone();
        step
    }

    fn deadline(&self, group: &str) -> Option<f64> {
        let by = self.status.groups[group].require_progress_by?;
        Some(by.duration_since(at(0.0)).as_secs_f64())
    }
}

fn seconds(time: Option<Timestamp>) -> Option<f64> {
    time.map(|time| time.duration_since(at(0.0)).as_secs_f64())
}

fn outcome(step: &DeploymentStep) -> (Phase, Why) {
    (step.status.phase, step.status.description)
}

const FAILED: (Phase, Why) = (Phase::Failed, Why::FailedAllocations);
const LATE: (Phase, Why) = (Phase::Failed, Why::ProgressDeadline);
const BY_USER: (Phase, Why) = (Phase::Failed, Why::FailedByUser);
const RUNNING: (Phase, Why) = (Phase::Running, Why::Running);
const CANARYING: (Phase, Why) = (Phase::Running, Why::NeedsPromotion);

fn all() -> Promote {
    Promote { all: true, groups: Vec::new() }
}

fn only(groups: &[&str]) -> Promote {
    Promote { all: false, groups: groups.iter().map(|&group| group.to_owned()).collect() }
}

fn replaced(step: &DeploymentStep) -> usize {
    step.effects.iter().filter(|effect| matches!(effect, DeploymentEffect::AllowReplacement(..))).count()
}

fn refusals(step: &DeploymentStep) -> Vec<String> {
    let refused = step.notices.iter().filter_map(|notices| match notices {
        StepNotice::Refused(refusal) => Some(refusal.to_string()),
        _ => None,
    });
    refused.collect()
}

#[test]
fn d_011_the_first_allocation_starts_the_deadline() {
    let mut world = World::new(&[("A", 3, 0, "10m")]);
    assert_eq!(world.advance(0.0).status.groups["A"].require_progress_by, None);
    world.alloc_with("A", None, |alloc| alloc.created_at = at(5.0));
    world.advance(6.0);
    assert_eq!(world.deadline("A"), Some(605.0));
}

#[test]
fn an_allocation_that_joins_in_place_starts_the_deadline_when_it_joins() {
    let mut world = World::new(&[("A", 3, 0, "10m")]);
    world.alloc_with("A", None, |alloc| alloc.created_at = at(-9000.0));
    world.advance(1.0);
    assert_eq!(world.deadline("A"), Some(600.0));
}

#[test]
fn d_012_a_healthy_allocation_moves_the_deadline_and_a_late_report_does_not_move_it_back() {
    let mut world = World::new(&[("A", 3, 0, "10m")]);
    world.alloc("A", Some((true, 30.0)));
    world.advance(31.0);
    assert_eq!(world.deadline("A"), Some(630.0));
    world.alloc("A", Some((true, 20.0)));
    world.advance(40.0);
    assert_eq!(world.deadline("A"), Some(630.0));
}

#[test]
fn a_clock_that_runs_ahead_gives_no_longer_deadline() {
    let mut world = World::new(&[("A", 3, 0, "10m")]);
    world.alloc("A", Some((true, 5000.0)));
    world.advance(10.0);
    assert_eq!(world.deadline("A"), Some(610.0));
}

#[test]
fn d_013_d_014_an_unhealthy_one_may_be_replaced_and_the_deadline_stays() {
    let mut world = World::new(&[("A", 1, 0, "10m")]);
    world.alloc("A", None);
    world.advance(0.0);
    world.allocs.clear();
    world.alloc("A", Some((false, 50.0)));
    let step = world.advance(50.0);
    assert_eq!((outcome(&step), replaced(&step), world.deadline("A")), (RUNNING, 1, Some(600.0)));
    assert_eq!(seconds(step.wake_at), Some(600.0));
    assert_eq!(outcome(&world.step_at(599.9)), RUNNING);
    assert_eq!(outcome(&world.step_at(600.0)), LATE);
}

#[test]
fn d_015_without_a_deadline_an_unhealthy_one_fails_it() {
    let mut world = World::new(&[("A", 1, 0, "0s")]);
    world.alloc("A", Some((false, 1.0)));
    let step = world.step_at(1.0);
    assert_eq!((outcome(&step), replaced(&step), step.evaluate), (FAILED, 0, true));
}

#[test]
fn d_016_without_attempts_an_unhealthy_one_fails_it() {
    let mut world = World::new(&[("A", 1, 0, "10m")]);
    world.reschedule(&json!({ "attempts": 0, "unlimited": false }));
    world.alloc("A", Some((false, 1.0)));
    assert_eq!(outcome(&world.step_at(1.0)), FAILED);
}

#[test]
fn d_017_an_attempt_that_is_used_up_fails_it() {
    let mut world = World::new(&[("A", 1, 0, "10m")]);
    let policy =
        json!({ "attempts": 1, "interval": "1h", "unlimited": false, "delay": "5s", "delayFunction": "constant" });
    world.reschedule(&policy);
    let event = json!({ "events": [{ "time": at(0.0), "prevAllocID": "u", "prevNodeName": "n", "delay": "5s" }] });
    world.alloc_with("A", Some((false, 100.0)), |alloc| {
        alloc.tracker = Some(serde_json::from_value(event.clone()).expect("a tracker"));
    });
    assert_eq!(outcome(&world.step_at(100.0)), FAILED);
    world.allocs.clear();
    world.alloc("A", Some((false, 100.0)));
    assert_eq!(outcome(&world.step_at(100.0)), RUNNING, "the first one has its attempt");
}

#[test]
fn d_018_unlimited_attempts_fail_only_by_the_deadline() {
    let mut world = World::new(&[("A", 1, 0, "10m")]);
    world.reschedule(&json!({ "unlimited": true, "delay": "5s" }));
    for _ in 0..40 {
        world.alloc("A", Some((false, 100.0)));
    }
    assert_eq!(outcome(&world.advance(100.0)), RUNNING);
    assert_eq!(outcome(&world.step_at(601.0)), LATE);
}

#[test]
fn d_081_without_a_policy_as_in_system_jobs_an_unhealthy_one_fails_it() {
    let mut world = World::new(&[("A", 1, 0, "10m")]);
    world.job["type"] = json!("system");
    world.alloc("A", Some((false, 1.0)));
    assert_eq!(outcome(&world.step_at(1.0)), FAILED);
}

// D-019, D-020, D-021.
#[test]
fn d_019_d_020_d_021_the_first_deadline_of_unfinished_groups_counts() {
    let mut world = World::new(&[("A", 1, 0, "500ms"), ("B", 1, 0, "1s")]);
    world.alloc("A", None);
    world.alloc("B", None);
    assert_eq!(seconds(world.advance(0.0).wake_at), Some(0.5));
    world.allocs[0] = healthy(&world.allocs[0], 0.2);
    let step = world.advance(0.2);
    assert!(is_done(&step.status.groups["A"], Some(1)));
    assert_eq!(seconds(step.wake_at), Some(1.0));
    world.allocs[1] = healthy(&world.allocs[1], 0.4);
    assert_eq!(world.advance(0.4).wake_at, None);
    assert_eq!(outcome(&world.step_at(100.0)), RUNNING);
}

fn healthy(alloc: &Alloc, seconds: f64) -> Arc<Alloc> {
    let health = Some(Health { is_healthy: true, deployment: alloc.deployment.clone(), at: at(seconds) });
    Arc::new(Alloc { health, ..alloc.clone() })
}

#[test]
fn d_022_the_deadline_of_a_finished_group_means_nothing() {
    let mut world = World::new(&[("A", 3, 0, "10m"), ("B", 1, 0, "10s")]);
    world.alloc("A", None);
    world.alloc("B", Some((true, 1.0)));
    world.advance(1.0);
    assert_eq!(world.deadline("B"), Some(11.0));
    assert_eq!(outcome(&world.step_at(60.0)), RUNNING);
}

#[test]
fn d_023_promotion_gives_every_group_its_whole_deadline() {
    let mut world = World::new(&[("A", 2, 1, "10s"), ("B", 2, 1, "10s")]);
    world.canary("A", Some((true, 5.0)));
    world.canary("B", Some((true, 1.0)));
    world.advance(5.0);
    assert_eq!(outcome(&world.advance(60.0)), CANARYING);
    world.spec.promote = Some(all());
    let step = world.advance(61.0);
    assert_eq!((outcome(&step), world.deadline("A"), world.deadline("B")), (RUNNING, Some(71.0), Some(71.0)));
    world.alloc("A", Some((true, 65.0)));
    world.alloc("B", Some((true, 66.0)));
    world.advance(66.0);
    assert_eq!(outcome(&world.step_at(200.0)), RUNNING);
}

#[test]
fn d_024_d_025_canaries_that_are_healthy_may_wait_for_a_person() {
    for (wanted, outcome_wanted) in [(1, CANARYING), (2, LATE)] {
        let mut world = World::new(&[("A", 3, wanted, "10s")]);
        world.canary("A", Some((true, 1.0)));
        let step = world.advance(1.0);
        assert_eq!(step.notices.contains(&StepNotice::CanariesHealthy), wanted == 1);
        assert_eq!(outcome(&world.step_at(11.0)), outcome_wanted);
    }
}

#[test]
fn d_026_one_group_is_promoted_and_the_other_is_untouched() {
    let mut world = World::new(&[("A", 3, 1, "10s"), ("B", 3, 1, "10s")]);
    world.canary("A", Some((true, 1.0)));
    world.canary("B", Some((true, 1.0)));
    world.advance(1.0);
    world.spec.promote = Some(only(&["A"]));
    let step = world.advance(4.0);
    assert_eq!((outcome(&step), step.evaluate), (CANARYING, true));
    assert_eq!((world.status.groups["A"].promoted, world.status.groups["B"].promoted), (true, false));
    assert_eq!((world.deadline("A"), world.deadline("B")), (Some(14.0), Some(11.0)));
}

// D-027, D-028.
#[test]
fn d_027_d_028_all_groups_that_are_short_are_named_and_none_is_promoted() {
    for (a, b, text) in [
        (true, false, "cannot promote: group B has 0/1 healthy canaries"),
        (false, false, "cannot promote: group A has 0/1 healthy canaries, group B has 0/1 healthy canaries"),
    ] {
        let mut world = World::new(&[("A", 3, 1, "10m"), ("B", 3, 1, "10m")]);
        world.canary("A", Some((a, 1.0)));
        world.canary("B", Some((b, 1.0)));
        world.advance(1.0);
        world.spec.promote = Some(all());
        let step = world.advance(2.0);
        assert!(refusals(&step)[0].starts_with(text), "{:?}", step.notices);
        assert!(!step.evaluate && world.status.groups.values().all(|state| !state.promoted));
        assert_eq!(refusals(&world.step_at(3.0)), [""; 0], "it is told once");
    }
}

#[test]
fn s_066_canaries_that_are_too_few_promote_nothing() {
    let mut world = World::new(&[("A", 3, 2, "10m")]);
    world.canary("A", Some((true, 1.0)));
    world.canary("A", None);
    world.advance(1.0);
    let before = world.status.groups.clone();
    world.spec.promote = Some(all());
    let step = world.advance(2.0);
    assert!(refusals(&step)[0].starts_with("cannot promote: group A has 1/2 healthy canaries"), "{:?}", step.notices);
    assert_eq!((step.status.groups, step.evaluate), (before, false));
}

#[test]
fn s_067_all_groups_are_promoted_and_their_deadlines_begin_anew() {
    let mut world = World::new(&[("A", 3, 1, "10m"), ("B", 3, 2, "10m")]);
    world.canary("A", Some((true, 1.0)));
    world.canary("B", Some((true, 1.0)));
    world.canary("B", Some((true, 1.0)));
    world.advance(1.0);
    world.spec.promote = Some(all());
    let step = world.advance(100.0);
    assert!(step.status.groups.values().all(|state| state.promoted) && step.evaluate);
    assert_eq!((world.deadline("A"), world.deadline("B")), (Some(700.0), Some(700.0)));
}

#[test]
fn d_029_a_canary_that_has_ended_does_not_count() {
    let mut world = World::new(&[("A", 3, 1, "10m")]);
    world.alloc_with("A", Some((true, 1.0)), |alloc| {
        alloc.canary = true;
        alloc.client = ClientStatus::Complete;
    });
    world.group("A").placed_canaries = vec!["A-0".to_owned()];
    world.spec.promote = Some(all());
    let step = world.step_at(2.0);
    assert_eq!(
        step.notices,
        [StepNotice::Refused(RequestRefusal::NotHealthy(vec![Short { group: "A".into(), healthy: 0, needed: 1 }]))]
    );
}

// D-030, D-083.
#[test]
fn d_030_d_083_groups_without_canaries_are_promoted_too() {
    let mut world = World::new(&[("A", 3, 0, "10s"), ("B", 1, 0, "10s")]);
    world.alloc("A", None);
    world.alloc("B", None);
    world.advance(0.0);
    world.spec.promote = Some(all());
    let step = world.advance(7.0);
    assert!(step.status.groups.values().all(|state| state.promoted) && step.evaluate);
    assert_eq!((refusals(&step).len(), world.deadline("A"), world.deadline("B")), (0, Some(17.0), Some(17.0)));
    assert!(!world.step_at(8.0).evaluate, "once");
}

#[test]
fn promoting_an_unknown_group_is_refused_by_name() {
    let mut world = World::new(&[("A", 3, 0, "10s")]);
    world.spec.promote = Some(only(&["A", "Z"]));
    assert_eq!(refusals(&world.step_at(1.0)), ["no such group in this deployment: Z; it has A"]);
}

#[test]
fn d_031_promoted_canaries_become_ordinary() {
    let mut world = World::new(&[("A", 3, 1, "10m")]);
    world.canary("A", Some((true, 1.0)));
    world.spec.promote = Some(all());
    let step = world.advance(2.0);
    let key = world.allocs[0].key.clone();
    assert!(step.effects.contains(&DeploymentEffect::EndCanary(key, Uid::from("uid-0"))));
    world.allocs[0] = Arc::new(Alloc { canary: false, ..(*world.allocs[0]).clone() });
    assert_eq!(world.step_at(3.0).effects, []);
    assert_eq!(world.status.groups["A"].placed_canaries, ["A-0"]);
}

/// Groups, each with whether it promotes itself and how many of its canaries are placed and healthy.
fn auto_promotes(groups: &[(&str, i64, bool, usize, usize)]) -> bool {
    let declared: Vec<_> = groups.iter().map(|(name, canaries, ..)| (*name, 3, *canaries, "10m")).collect();
    let mut world = World::new(&declared);
    for (name, _, auto, placed, healthy) in groups {
        world.group(name).auto_promote = *auto;
        for n in 0..*placed {
            world.canary(name, (n < *healthy).then_some((true, 1.0)));
        }
    }
    world.step_at(2.0).status.groups.values().all(|state| state.promoted)
}

#[test]
fn d_033_d_034_d_035_d_036_when_canaries_promote_themselves() {
    assert!(auto_promotes(&[("A", 1, true, 1, 1), ("B", 2, true, 2, 2)]), "D-033");
    assert!(!auto_promotes(&[("A", 1, true, 1, 1), ("B", 1, false, 1, 1)]), "D-034");
    assert!(auto_promotes(&[("A", 1, true, 1, 1), ("B", 0, false, 0, 0)]), "D-035");
    assert!(!auto_promotes(&[("A", 2, true, 1, 1)]), "D-036");
    assert!(!auto_promotes(&[("A", 2, true, 2, 1)]));
    assert!(!auto_promotes(&[("A", 1, true, 1, 1), ("B", 1, true, 1, 0)]), "one short, none promoted");
}

#[test]
fn d_037_d_038_d_039_d_040_pause_and_resume() {
    let mut world = World::new(&[("A", 3, 0, "10s"), ("B", 1, 0, "20s")]);
    world.alloc("A", None);
    world.advance(0.0);
    world.spec.paused = true;
    let step = world.advance(5.0);
    assert_eq!((outcome(&step), step.evaluate, step.wake_at), ((Phase::Paused, Why::Paused), false, None));
    world.allocs[0] = healthy(&world.allocs[0], 6.0);
    let step = world.advance(6.0);
    assert!(!step.evaluate && !step.evaluate_soon, "D-037");
    assert_eq!(world.advance(7.0).status.phase, Phase::Paused, "D-038");
    assert_eq!(world.advance(900.0).status.phase, Phase::Paused, "D-039");
    world.spec.paused = false;
    let step = world.advance(1000.0);
    assert_eq!((outcome(&step), step.evaluate), (RUNNING, true));
    assert_eq!((world.deadline("A"), world.deadline("B")), (Some(1010.0), Some(1020.0)), "D-040");
}

#[test]
fn d_041_resuming_what_runs_changes_nothing() {
    let mut world = World::new(&[("A", 1, 0, "10s")]);
    assert_eq!(check_phase(&DeploymentRequest::Resume, Phase::Running), Ok(()));
    let step = world.advance(1.0);
    assert_eq!(outcome(&step), RUNNING);
}

/// Versions of the job: number, whether stable, and what it runs. The deployment is of the last one.
fn history(world: &mut World, versions: &[(i64, bool, &str)]) {
    world.versions =
        versions.iter().map(|(number, stable, release)| (*number, *stable, String::new(), spec(release))).collect();
    world.spec.job_version = versions.last().expect("a version").0;
}

/// The rollback of a deployment that a person fails, and the version it restores.
fn rolled_back(versions: &[(i64, bool, &str)], reverts: bool) -> (Option<Rollback>, Option<i64>) {
    let mut world = World::new(&[("A", 1, 0, "10m")]);
    history(&mut world, versions);
    world.group("A").auto_revert = reverts;
    world.spec.fail = true;
    let step = world.step_at(1.0);
    assert_eq!((outcome(&step), step.evaluate), (BY_USER, true));
    let restored = step.effects.iter().find_map(|effect| match effect {
        DeploymentEffect::Restore(intent) => intent.rollback_to_version,
        DeploymentEffect::AllowReplacement(..) | DeploymentEffect::EndCanary(..) => None,
    });
    (step.status.rollback, restored)
}

fn rollback(result: RollbackResult, version: Option<i64>) -> Rollback {
    Rollback { result, version }
}

#[test]
fn d_043_d_044_d_045_d_046_d_048_where_a_failed_deployment_goes_back_to() {
    use RollbackResult::{NoStableVersion, RollbackSameSpec, RolledBack};
    assert_eq!(rolled_back(&[(0, true, "0"), (1, false, "1")], false), (None, None), "D-043");
    assert_eq!(
        rolled_back(&[(0, true, "0"), (1, false, "1")], true),
        (Some(rollback(RolledBack, Some(0))), Some(0)),
        "D-044"
    );
    assert_eq!(
        rolled_back(&[(0, false, "0"), (1, false, "1")], true),
        (Some(rollback(NoStableVersion, None)), None),
        "D-045"
    );
    assert_eq!(
        rolled_back(&[(0, true, "1"), (1, false, "1")], true),
        (Some(rollback(RollbackSameSpec, Some(0))), None),
        "D-046"
    );
    let many = [(0, true, "0"), (3, true, "3"), (4, false, "4"), (5, false, "5")];
    assert_eq!(rolled_back(&many, true), (Some(rollback(RolledBack, Some(3))), Some(3)), "D-048");
}

#[test]
fn d_047_a_rollback_that_fails_itself_goes_nowhere() {
    // Version 2 restored version 0, is stable by that, and fails.
    let restored = [(0, true, "0"), (1, false, "1"), (2, true, "0")];
    assert_eq!(rolled_back(&restored, true), (Some(rollback(RollbackResult::RollbackSameSpec, Some(2))), None));
}

#[test]
fn a_failed_deployment_does_not_replace_a_newer_version() {
    let mut world = World::new(&[("A", 1, 0, "10m")]);
    history(&mut world, &[(0, true, "0"), (1, false, "1"), (2, false, "2")]);
    world.spec.job_version = 1;
    world.group("A").auto_revert = true;
    world.spec.fail = true;
    assert_eq!(world.step_at(1.0).status.rollback, None);
}

#[test]
fn d_077_a_rollback_is_finished_by_whoever_finds_it_and_once() {
    let mut world = World::new(&[("A", 1, 0, "10m")]);
    history(&mut world, &[(0, true, "0"), (1, false, "1")]);
    world.group("A").auto_revert = true;
    world.spec.fail = true;
    let first = world.advance(1.0);
    // The crash: the status is stored, the version was not made.
    let again = world.step_at(2.0);
    assert_eq!((&again.effects, again.status == first.status), (&first.effects, true));
    let intent = first.status.intent.expect("an intent").id;
    world.versions.push((2, true, intent, spec("0")));
    let done = world.advance(3.0);
    assert_eq!((done.effects.len(), done.status.intent, done.evaluate), (0, None, true));
    let rest = world.step_at(4.0);
    assert_eq!((rest.status == world.status, rest.evaluate, rest.notices.len()), (true, false, 0));
}

#[test]
fn a_spec_that_comes_before_the_rollback_is_done_stays() {
    let mut world = World::new(&[("A", 1, 0, "10m")]);
    history(&mut world, &[(0, true, "0"), (1, false, "1")]);
    world.group("A").auto_revert = true;
    world.spec.fail = true;
    assert_eq!(world.advance(1.0).effects.len(), 1);
    world.versions.push((2, false, String::new(), spec("2")));
    let step = world.advance(2.0);
    assert_eq!((step.effects.len(), step.status.intent), (0, None));
}

fn declare(healthy: &[&str], unhealthy: &[&str]) -> AllocationHealth {
    let owned = |uids: &[&str]| uids.iter().map(|&uid| uid.to_owned()).collect();
    AllocationHealth { healthy: owned(healthy), unhealthy: owned(unhealthy) }
}

#[test]
fn d_049_a_person_declares_an_allocation_healthy() {
    let mut world = World::new(&[("A", 2, 0, "10m")]);
    let uid = world.alloc("A", None);
    world.advance(1.0);
    world.spec.allocation_health = Some(declare(&[&uid], &[]));
    let step = world.advance(30.0);
    assert_eq!((outcome(&step), step.evaluate, world.status.groups["A"].healthy_allocs), (RUNNING, true, 1));
    assert_eq!(world.deadline("A"), Some(630.0));
    let judged = judgements(&world.spec, &world.status);
    assert_eq!(judged[&uid], Health { is_healthy: true, deployment: None, at: at(30.0) });
    assert!(!world.step_at(31.0).evaluate, "once");
}

#[test]
fn d_050_d_051_d_052_a_person_declares_an_allocation_unhealthy() {
    for (a, b, wanted) in [(false, false, None), (false, true, None), (true, false, Some(RollbackResult::RolledBack))] {
        let mut world = World::new(&[("A", 2, 0, "10m"), ("B", 1, 0, "10m")]);
        history(&mut world, &[(0, true, "0"), (1, false, "1")]);
        (world.group("A").auto_revert, world.group("B").auto_revert) = (a, b);
        let uid = world.alloc("A", None);
        world.spec.allocation_health = Some(declare(&[], &[&uid]));
        let step = world.step_at(1.0);
        assert_eq!((outcome(&step), step.evaluate), (FAILED, true), "D-050");
        assert_eq!(step.status.rollback.map(|rollback| rollback.result), wanted, "D-052");
    }
    let mut world = World::new(&[("A", 2, 0, "10m")]);
    world.group("A").auto_revert = true;
    let uid = world.alloc("A", None);
    world.spec.allocation_health = Some(declare(&[], &[&uid]));
    assert_eq!(world.step_at(1.0).status.rollback, None, "D-051");
}

#[test]
fn d_053_a_declaration_counts_whole_or_not_at_all() {
    let mut world = World::new(&[("A", 2, 0, "10m")]);
    let uid = world.alloc("A", None);
    for (request, text) in [
        (Some(declare(&[], &[])), "no allocation is named"),
        (Some(declare(&[&uid, "x"], &[])), "not allocations of this deployment: x"),
    ] {
        world.spec.allocation_health = request;
        let step = world.step_at(1.0);
        assert!(refusals(&step)[0].starts_with(text));
        assert_eq!((step.status.groups["A"].healthy_allocs, step.evaluate), (0, false));
        assert!(judgements(&world.spec, &step.status).is_empty());
    }
}

#[test]
fn d_054_nothing_can_be_asked_of_what_is_over() {
    let calls = [
        (DeploymentRequest::Pause, "pause"),
        (DeploymentRequest::Resume, "resume"),
        (DeploymentRequest::Promote(all()), "promote"),
        (DeploymentRequest::Fail, "fail"),
    ];
    for phase in [Phase::Failed, Phase::Successful, Phase::Cancelled] {
        for (call, verb) in &calls {
            let text = check_phase(call, phase).expect_err("refused").to_string();
            assert_eq!(
                text,
                format!("cannot {verb} a terminal deployment: it is {phase}; act on the job's newest deployment")
            );
        }
        // What was written nevertheless has no effect.
        let mut world = World::new(&[("A", 1, 1, "10s")]);
        world.status.phase = phase;
        world.alloc("A", Some((false, 1.0)));
        (world.spec.fail, world.spec.paused, world.spec.promote) = (true, true, Some(all()));
        let step = world.step_at(500.0);
        assert_eq!((step.status == world.status, step.effects.len(), step.evaluate), (true, 0, false));
    }
}

#[test]
fn d_061_a_new_leader_takes_the_same_step_and_no_second_one() {
    let mut world = World::new(&[("A", 2, 0, "10s")]);
    world.reschedule(&json!({ "unlimited": true, "delay": "5s" }));
    world.alloc("A", Some((false, 1.0)));
    world.advance(1.0);
    let (one, other) = (world.step_at(9.0), world.step_at(9.0));
    assert_eq!(one, other);
    assert_eq!(seconds(one.wake_at), Some(10.0), "the deadline is in the object");
    world.advance(10.5);
    let later = world.step_at(11.0);
    assert_eq!((outcome(&later), later.notices.len(), later.status == world.status), (LATE, 0, true));
}

#[test]
fn d_004_d_064_d_065_what_was_evaluated_needs_no_evaluation() {
    let record = |snapshot_index, create_index, is_cancelled| EvalRecord { snapshot_index, create_index, is_cancelled };
    let listed = [record(None, 60, false), record(Some(50), 40, false)];
    assert_eq!(latest_index(listed), 60, "D-064");
    assert_eq!(latest_index([record(Some(99), 99, true)]), 0, "D-065");
    let mut world = World::new(&[("A", 3, 0, "10m")]);
    world.alloc("A", None);
    assert!(!world.step_at(1.0).evaluate_soon, "D-004: no verdict yet");
    world.allocs[0] = healthy(&world.allocs[0], 1.0);
    for (latest, wanted) in [(0, true), (9, true), (10, false), (60, false)] {
        world.latest_eval = latest;
        assert_eq!(world.step_at(1.0).evaluate_soon, wanted, "{latest}");
    }
}

#[test]
fn d_071_the_priority_of_its_evaluations() {
    let deployment = |eval_priority| Deployment {
        key: JobKey::new("shop", "d"),
        uid: Uid::from("u"),
        job: JobKey::new("shop", "web"),
        job_uid: Uid::from("job"),
        job_version: 1,
        phase: Phase::Running,
        groups: BTreeMap::new(),
        eval_priority,
        judgements: BTreeMap::new(),
        created_at: at(0.0),
    };
    assert_eq!((deployment(80).priority(50), deployment(0).priority(50)), (80, 50));
}

#[test]
fn d_082_a_group_that_is_done_has_no_say_in_the_cutoff() {
    let mut world = World::new(&[("A", 1, 1, "2s"), ("B", 2, 1, "2s")]);
    world.canary("A", Some((true, 0.0)));
    world.canary("B", Some((true, 1.5)));
    world.advance(1.5);
    world.spec.promote = Some(all());
    let step = world.advance(3.0);
    assert!(is_done(&step.status.groups["A"], Some(1)));
    assert_eq!(seconds(step.wake_at), Some(5.0));
    assert_eq!(outcome(&world.step_at(4.9)), RUNNING);
}

#[test]
fn d_079_a_scale_during_the_rollout_changes_what_is_needed_and_not_what_was_begun() {
    let mut world = World::new(&[("A", 5, 0, "10s")]);
    for _ in 0..3 {
        world.alloc("A", Some((true, 1.0)));
    }
    world.counts.insert("A".into(), 3);
    let step = world.advance(1.0);
    assert_eq!((world.status.groups["A"].desired_total, step.wake_at), (5, None));
    assert_eq!(outcome(&world.step_at(100.0)), RUNNING);
}

#[test]
fn after_the_deadline_every_failure_is_one_of_the_deadline() {
    let mut world = World::new(&[("A", 3, 1, "10s")]);
    world.canary("A", Some((true, 1.0)));
    world.advance(1.0);
    assert_eq!(outcome(&world.advance(20.0)), CANARYING);
    let uid = world.alloc("A", None);
    world.spec.allocation_health = Some(declare(&[], &[&uid]));
    assert_eq!(outcome(&world.step_at(21.0)), LATE);
}

#[test]
fn d_086_what_is_lost_later_takes_no_progress_back() {
    let mut world = World::new(&[("A", 2, 0, "10s"), ("B", 2, 1, "1000s")]);
    world.alloc("A", Some((true, 1.0)));
    world.alloc("A", Some((true, 2.0)));
    world.canary("B", Some((true, 3.0)));
    assert_eq!(outcome(&world.advance(4.0)), CANARYING);
    // Long after the deadline a node goes, and another allocation takes over.
    world.change("A-0", |alloc| (alloc.client, alloc.desired) = (ClientStatus::Lost, DesiredStatus::Stop));
    world.alloc_with("A", None, |alloc| alloc.previous = Some("A-0".into()));
    assert_eq!(outcome(&world.advance(500.0)), CANARYING);
    assert_eq!((world.status.groups["A"].healthy_allocs, world.status.groups["A"].placed_allocs), (2, 3));
    // What replaces it adds nothing when it is healthy: one slot counts once.
    let replacement = world.allocs.len() - 1;
    let health = world.allocs[1].health.clone();
    world.change(&format!("A-{replacement}"), |alloc| alloc.health = health.clone());
    world.advance(510.0);
    assert_eq!(world.status.groups["A"].healthy_allocs, 2);
}

#[test]
fn d_086_a_group_with_time_left_does_not_fail_for_another_that_waits() {
    let mut world = World::new(&[("A", 2, 1, "10s"), ("B", 2, 0, "100s")]);
    world.canary("A", Some((true, 1.0)));
    world.alloc("B", None);
    world.advance(1.0);
    assert_eq!(outcome(&world.advance(50.0)), CANARYING);
    assert_eq!(outcome(&world.advance(101.0)), LATE);
}

#[test]
fn d_087_a_deadline_that_was_met_or_moved_is_forgotten() {
    let unhealthy = |world: &mut World, group: &str| {
        let uid = world.alloc(group, None);
        world.spec.allocation_health = Some(declare(&[], &[&uid]));
    };
    // Met: both of A became healthy in time.
    let mut world = World::new(&[("A", 2, 0, "10s"), ("B", 2, 0, "1000s")]);
    world.alloc("A", Some((true, 1.0)));
    world.alloc("A", Some((true, 2.0)));
    world.advance(20.0);
    unhealthy(&mut world, "B");
    assert_eq!(outcome(&world.step_at(21.0)), (Phase::Failed, Why::FailedAllocations));
    // Moved: the canary waited for longer than its deadline, and was promoted.
    let mut world = World::new(&[("A", 3, 1, "10s")]);
    world.canary("A", Some((true, 1.0)));
    world.advance(1.0);
    assert_eq!(outcome(&world.advance(20.0)), CANARYING);
    world.spec.promote = Some(all());
    world.advance(21.0);
    unhealthy(&mut world, "A");
    assert_eq!(outcome(&world.step_at(22.0)), (Phase::Failed, Why::FailedAllocations));
}

#[test]
fn s_202_a_roll_out_goes_on_as_long_as_each_progress_comes_in_time() {
    let mut world = World::new(&[("A", 3, 0, "10s")]);
    world.alloc("A", Some((true, 8.0)));
    world.alloc("A", None);
    world.alloc("A", None);
    assert_eq!(outcome(&world.advance(8.0)), RUNNING);
    assert_eq!(outcome(&world.advance(17.0)), RUNNING, "the first deadline is past, the first progress was at 8");
    assert_eq!(outcome(&world.step_at(18.0)), LATE);
}
