//! Which allocations are replaced now, later or never: the tables of 3.3.

use std::sync::Arc;

use drover_api::allocation::{
    ClientStatus, DesiredStatus, FollowUp, LastReschedule, RescheduleEvent, RescheduleTracker,
};
use drover_api::client_node::NodePhase;
use drover_api::deployment::DeploymentPhase;
use drover_api::job::EvalTrigger;
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::ids::{JobKey, Uid};
use crate::model::{Alloc, Deployment, Node};
use crate::scheduler::plan::Evaluation;
use crate::scheduler::reconcile::sort::{Rules, due};
use crate::scheduler::tests::{World, key, node, now, spec};

/// A job of a type that reschedules 30 s after a failure, without a limit.
fn world(kind: &str) -> World {
    let mut one = spec(1);
    one["type"] = json!(kind);
    if kind == "batch" {
        one["groups"][0].as_object_mut().unwrap().remove("update");
    }
    one["groups"][0]["reschedule"] = json!({ "delay": "30s", "delayFunction": "constant", "unlimited": true });
    one["groups"][0]["disconnect"] = json!({ "lostAfter": "5m" });
    World::new(&one)
}

/// What an evaluation looks at besides the allocation.
#[derive(Clone, Copy, Default)]
struct Look {
    is_disconnecting: bool,
    is_awaited: bool,
    phase: Option<DeploymentPhase>,
}

/// `gone`, `stays`, `now`, or `later` with the seconds until then.
fn fate_of(world: &mut World, look: Look, change: impl Fn(&mut Alloc)) -> String {
    world.allocs([0], |alloc| {
        alloc.last_event_at = now() - SignedDuration::from_secs(10);
        change(alloc);
    });
    let alloc = Arc::clone(world.view.allocs_of_job(&key()).next().unwrap());
    let awaited = alloc.follow_up.clone().filter(|_| look.is_awaited);
    let eval = Evaluation {
        id: "e".into(),
        job: key(),
        trigger: awaited.as_ref().map_or(EvalTrigger::JobRegister, |awaited| awaited.trigger),
        priority: 50,
        now: now(),
        wait_until: awaited.map(|awaited| awaited.at),
    };
    let deployment = look.phase.map(|phase| Deployment {
        key: JobKey::new("shop", "d"),
        uid: Uid::from("d"),
        job: key(),
        job_uid: world.job.uid.clone(),
        job_version: 1,
        phase,
        groups: [].into(),
        eval_priority: 0,
        judgements: [].into(),
        created_at: now(),
    });
    let rules = Rules {
        view: &world.view,
        job: &world.job,
        group: &world.job.definition.spec.groups[0],
        eval: &eval,
        deployment: deployment.as_ref(),
        is_disconnecting: look.is_disconnecting,
    };
    let found = due(rules, vec![alloc]);
    match (found.now.len(), found.later.first(), found.untainted.len()) {
        (1, None, 0) => "now".to_owned(),
        (0, Some((at, _)), 1) => format!("later {}", at.duration_since(now()).as_secs()),
        (0, None, 1) => "stays".to_owned(),
        (0, None, 0) => "gone".to_owned(),
        other => panic!("{other:?}"),
    }
}

type Change = fn(&mut Alloc);

const FAILS: Change = |alloc| alloc.client = ClientStatus::Failed;
const FOUND_NO_PLACE: Change = |alloc| {
    FAILS(alloc);
    let last_reschedule = Some(LastReschedule::NoPlacement);
    alloc.tracker = Some(RescheduleTracker { events: Vec::new(), last_reschedule });
};
const FINISHES: Change = |alloc| (alloc.client, alloc.ran_successfully) = (ClientStatus::Complete, true);

#[test]
fn the_first_filter_lets_pass_what_may_be_replaced() {
    let (run, stop, evict) = (DesiredStatus::Run, DesiredStatus::Stop, DesiredStatus::Evict);
    let drained: Change = |alloc| {
        FAILS(alloc);
        alloc.transition.migrate_disable_placement = true;
    };
    let wished: Change = |alloc| alloc.transition.reschedule = true;
    let runs: Change = |_| {};
    let is_lost: Change = |alloc| alloc.client = ClientStatus::Lost;
    for (kind, desired, change, wanted) in [
        ("batch", run, drained, "stays"),
        ("batch", stop, drained, "stays"),
        ("batch", stop, wished, "later 20"),
        ("batch", run, wished, "later 20"),
        ("batch", stop, FINISHES, "stays"),
        ("batch", stop, FOUND_NO_PLACE, "later 20"),
        ("batch", stop, FAILS, "gone"),
        ("batch", stop, runs, "gone"),
        ("batch", evict, FAILS, "gone"),
        ("batch", evict, FOUND_NO_PLACE, "gone"),
        ("batch", run, FAILS, "later 20"),
        ("batch", run, FINISHES, "stays"),
        ("batch", run, runs, "stays"),
        ("service", stop, FOUND_NO_PLACE, "later 20"),
        ("service", evict, FOUND_NO_PLACE, "later 20"),
        ("service", stop, FAILS, "gone"),
        ("service", evict, FAILS, "gone"),
        ("service", stop, FINISHES, "gone"),
        ("service", run, FINISHES, "gone"),
        ("service", run, is_lost, "gone"),
        ("service", run, FAILS, "later 20"),
        ("service", run, runs, "stays"),
    ] {
        let mut world = world(kind);
        let got = fate_of(&mut world, Look::default(), |alloc| {
            change(alloc);
            alloc.desired = desired;
        });
        let alloc = world.view.allocs_of_job(&key()).next().unwrap();
        assert_eq!(got, wanted, "{kind} {desired} {} {:?} {:?}", alloc.client, alloc.tracker, alloc.transition);
    }
}

#[test]
fn a_running_roll_out_has_the_first_word_on_its_own() {
    let of_deployment: Change = |alloc| {
        FAILS(alloc);
        alloc.deployment = Some("d".into());
    };
    let wished: Change = |alloc| {
        FAILS(alloc);
        (alloc.deployment, alloc.transition.reschedule) = (Some("d".into()), true);
    };
    let forced: Change = |alloc| {
        FAILS(alloc);
        (alloc.deployment, alloc.transition.force_reschedule) = (Some("d".into()), true);
    };
    let of_another: Change = |alloc| {
        FAILS(alloc);
        alloc.deployment = Some("c".into());
    };
    let on = |phase| Look { phase: Some(phase), ..Look::default() };
    for (phase, change, wanted) in [
        (DeploymentPhase::Running, of_deployment, "stays"),
        (DeploymentPhase::Paused, of_deployment, "stays"),
        (DeploymentPhase::Running, wished, "later 20"),
        (DeploymentPhase::Running, forced, "now"),
        (DeploymentPhase::Running, of_another, "later 20"),
        (DeploymentPhase::Successful, of_deployment, "later 20"),
        (DeploymentPhase::Failed, of_deployment, "later 20"),
    ] {
        assert_eq!(fate_of(&mut world("service"), on(phase), change), wanted, "{phase}");
    }
}

#[test]
fn it_is_time_when_the_delay_has_passed_but_for_a_second() {
    for (failed_ago, wanted) in [(0, "later 30"), (28, "later 2"), (29, "now"), (30, "now"), (3600, "now")] {
        let got = fate_of(&mut world("service"), Look::default(), |alloc| {
            FAILS(alloc);
            alloc.last_event_at = now() - SignedDuration::from_secs(failed_ago);
        });
        assert_eq!(got, wanted, "failed {failed_ago} s ago");
    }
}

#[test]
fn one_that_waits_for_its_evaluation_is_replaced_by_that_one_alone() {
    let waits: Change = |alloc| {
        FAILS(alloc);
        let at = now() + SignedDuration::from_secs(20);
        alloc.follow_up = Some(FollowUp { trigger: EvalTrigger::AllocReschedule, at });
    };
    assert_eq!(fate_of(&mut world("service"), Look::default(), waits), "stays");
    assert_eq!(fate_of(&mut world("service"), Look { is_awaited: true, ..Look::default() }, waits), "now");
}

#[test]
fn one_that_is_being_cut_off_is_replaced_from_now_on() {
    let cut = Look { is_disconnecting: true, ..Look::default() };
    let runs: Change = |_| {};
    let is_unknown: Change = |alloc| {
        alloc.client = ClientStatus::Unknown;
        alloc.states = vec![(ClientStatus::Unknown, now())];
    };
    let disconnected = |replace: bool| {
        let mut one = spec(1);
        one["groups"][0]["reschedule"] = json!({ "delay": "30s", "delayFunction": "constant", "unlimited": true });
        one["groups"][0]["disconnect"] = json!({ "lostAfter": "5m", "replace": replace });
        let mut world = World::new(&one);
        world.view.put_node(Node { phase: NodePhase::Disconnected, ..node("n-0") });
        world
    };
    assert_eq!(fate_of(&mut disconnected(true), cut, runs), "later 30");
    assert_eq!(fate_of(&mut disconnected(false), cut, runs), "stays");
    assert_eq!(fate_of(&mut disconnected(true), cut, is_unknown), "gone", "it was dealt with before");
    let forced: Change = |alloc| alloc.transition.force_reschedule = true;
    assert_eq!(fate_of(&mut disconnected(false), cut, forced), "now");
}

/// What becomes of one that failed 10 s ago after replacements `ago` seconds ago, with these delays.
fn after_events(policy: &Value, events: &[(i64, i64)]) -> String {
    let mut one = spec(1);
    one["groups"][0]["reschedule"] = policy.clone();
    let events: Vec<RescheduleEvent> = events
        .iter()
        .map(|(ago, delay)| RescheduleEvent {
            time: now() - SignedDuration::from_secs(*ago),
            prev_alloc_id: String::new(),
            prev_node_name: String::new(),
            delay: drover_api::GoDuration::from_secs(*delay),
        })
        .collect();
    fate_of(&mut World::new(&one), Look::default(), |alloc| {
        FAILS(alloc);
        alloc.tracker = Some(RescheduleTracker { events: events.clone(), last_reschedule: None });
    })
}

#[test]
fn delays_grow_with_what_was_tried_and_attempts_run_out() {
    let unlimited =
        |function: &str| json!({ "delay": "60s", "delayFunction": function, "maxDelay": "10m", "unlimited": true });
    let bounded = |attempts: i64, interval: &str| json!({ "delay": "60s", "delayFunction": "constant", "attempts": attempts, "interval": interval, "unlimited": false });
    for (policy, events, wanted) in [
        (unlimited("constant"), &[][..], "later 50"),
        (unlimited("constant"), &[(300, 60), (200, 60)], "later 50"),
        (unlimited("exponential"), &[], "later 50"),
        (unlimited("exponential"), &[(300, 60)], "later 110"),
        (unlimited("exponential"), &[(300, 60), (100, 120)], "later 230"),
        // Above the longest delay it stays there, and begins anew after a quiet time.
        (unlimited("exponential"), &[(500, 480)], "later 590"),
        (unlimited("exponential"), &[(5000, 480)], "later 50"),
        (unlimited("fibonacci"), &[(300, 60)], "later 50"),
        (unlimited("fibonacci"), &[(300, 60), (200, 60)], "later 110"),
        (unlimited("fibonacci"), &[(300, 120), (200, 180)], "later 290"),
        (unlimited("fibonacci"), &[(900, 600), (200, 60)], "later 50"),
        (bounded(2, "1h"), &[], "later 50"),
        (bounded(2, "1h"), &[(600, 60)], "later 50"),
        (bounded(2, "1h"), &[(600, 60), (300, 60)], "stays"),
        // What was tried before the interval counts no more.
        (bounded(2, "1h"), &[(3611, 60), (300, 60)], "later 50"),
        (bounded(2, "1h"), &[(3609, 60), (300, 60)], "stays"),
        (bounded(0, "1h"), &[], "stays"),
        // A delay that the interval does not hold is none, once something was tried.
        (bounded(2, "60s"), &[], "later 50"),
        (bounded(2, "60s"), &[(600, 60)], "stays"),
    ] {
        assert_eq!(after_events(&policy, events), wanted, "{policy} after {events:?}");
    }
}
