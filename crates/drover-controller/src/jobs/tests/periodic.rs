//! Launches of periodic jobs. Every test begins on Monday, the 2nd of March 2026, at 08:00 UTC.

use std::time::Duration;

use drover_api::Job;
use drover_api::allocation::ClientStatus;
use drover_api::finalizer;
use drover_api::job::{JobConditionType, JobPhase};
use drover_store::{Object, StoreError};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{condition, told};
use crate::tests::{World, conflict, group, in_default, job, unavailable};

fn periodic(rules: &Value) -> Job {
    job("clean", &json!({ "type": "batch", "periodic": rules, "groups": [group("g", 1)] }))
}

/// When the launches of a job were due, as their ids say.
fn launches(world: &World) -> Vec<String> {
    let of = |job: &Job| {
        let seconds = job.spec.id.strip_prefix("clean/periodic-")?.parse().ok()?;
        Timestamp::from_second(seconds).ok().map(|at| at.to_string())
    };
    let mut at: Vec<String> = world.all::<Job>().iter().filter_map(of).collect();
    at.sort();
    at
}

fn on_the_hour(hours: &[i8]) -> Vec<String> {
    hours.iter().map(|hour| format!("2026-03-02T{hour:02}:00:00Z")).collect()
}

fn end_all(world: &World) {
    for alloc in world.allocs() {
        world.end(&alloc, ClientStatus::Complete);
    }
}

#[tokio::test(start_paused = true)]
async fn a_launch_is_a_job_of_its_own_that_the_periodic_one_owns_and_that_has_no_schedule() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&periodic(&json!({ "crons": ["0 * * * *"] })));
    world.advance(Duration::from_mins(59)).await;
    assert_eq!(launches(&world), Vec::<String>::new(), "nothing is due before the hour");
    assert_eq!(world.allocs().len(), 0, "the periodic job places nothing itself");
    world.advance(Duration::from_mins(2)).await;
    assert_eq!(launches(&world), on_the_hour(&[9]));
    let child = world.all::<Job>().into_iter().find(|job| job.key().name != "clean").unwrap();
    let owner = &child.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("Job", "clean"));
    assert_eq!(Some(&owner.uid), world.the::<Job>("clean").metadata.uid.as_ref());
    assert_eq!(child.spec.periodic, None);
    assert_eq!(world.allocs().len(), 1);
    let name = child.key().name;
    let writes = world.store.take_writes();
    assert!(!writes.contains(&format!("merge Job default/{name}")), "it is held from the start: {writes:?}");
    assert!(finalizer::is_held(&child.metadata, finalizer::STOP_ALLOCATIONS));
    let expected = format!("Normal PeriodicLaunched clean: the launch of 2026-03-02T09:00:00Z is djob/{name}");
    assert!(world.events().contains(&expected), "{:?}", world.events());
}

#[tokio::test(start_paused = true)]
async fn launches_follow_all_schedules_of_a_job_in_its_time_zone() {
    let cases = [
        (json!({ "crons": ["0 */2 * * *"] }), vec![10, 12, 14]),
        (json!({ "cron": "0 10 * * *" }), vec![10]),
        (json!({ "crons": ["0 9 * * *", "0 12 * * 1", "0 13 * * 2"] }), vec![9, 12]),
        // Berlin is an hour ahead in winter.
        (json!({ "crons": ["0 11 * * *"], "timeZone": "Europe/Berlin" }), vec![10]),
        (json!({ "crons": ["0 9 * * *"], "enabled": false }), vec![]),
    ];
    for (rules, hours) in cases {
        let mut world = World::with_nodes(["n1"]);
        world.create(&periodic(&rules));
        world.advance(Duration::from_mins(6 * 60 + 30)).await;
        assert_eq!(launches(&world), on_the_hour(&hours), "{rules}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_launch_in_the_hour_that_the_clock_skips_does_not_happen_that_day() {
    // On the 29th of March the clock in Berlin goes from 02:00 to 03:00.
    let mut world = World::new();
    world.create(&periodic(&json!({ "crons": ["30 2 28-30 3 *"], "timeZone": "Europe/Berlin" })));
    world.advance(Duration::from_secs(1)).await;
    let next = |world: &World| world.the::<Job>("clean").status.unwrap().next_launch.map(|at| at.to_string());
    assert_eq!(next(&world).as_deref(), Some("2026-03-28T01:30:00Z"));
    world.advance(Duration::from_hours(25 * 24 + 18)).await;
    assert_eq!(launches(&world), ["2026-03-28T01:30:00Z"]);
    assert_eq!(next(&world).as_deref(), Some("2026-03-30T00:30:00Z"));
}

#[tokio::test(start_paused = true)]
async fn s_191_while_an_earlier_launch_runs_the_next_is_left_out_and_not_made_up_for() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&periodic(&json!({ "crons": ["0 * * * *"], "prohibitOverlap": true })));
    world.live(Duration::from_mins(135)).await;
    assert_eq!(launches(&world), on_the_hour(&[9]), "that of 10 o'clock is left out");
    let skipped =
        "Normal LaunchSkipped clean: the launch of 2026-03-02T10:00:00Z is left out: an earlier one still runs";
    assert_eq!(told(&world, skipped), 1);
    let status = world.the::<Job>("clean").status.unwrap();
    assert_eq!(status.last_skipped_launch.map(|at| at.to_string()), Some(on_the_hour(&[10]).remove(0)));
    end_all(&world);
    world.live(Duration::from_mins(30)).await;
    assert_eq!(launches(&world), on_the_hour(&[9]));
    world.live(Duration::from_mins(30)).await;
    assert_eq!(launches(&world), on_the_hour(&[9, 11]));
}

#[tokio::test(start_paused = true)]
async fn without_that_rule_launches_overlap() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&periodic(&json!({ "crons": ["0 * * * *"] })));
    world.live(Duration::from_mins(130)).await;
    assert_eq!(launches(&world), on_the_hour(&[9, 10]));
    let children = world.the::<Job>("clean").status.unwrap().children.unwrap();
    assert_eq!((children.pending, children.running, children.dead), (0, 2, 0));
    end_all(&world);
    world.live(Duration::from_secs(10)).await;
    let children = world.the::<Job>("clean").status.unwrap().children.unwrap();
    assert_eq!((children.pending, children.running, children.dead), (0, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn what_was_missed_while_nobody_led_is_launched_once_and_the_schedule_goes_on() {
    for missed in [0_u64, 1, 3] {
        let mut world = World::with_nodes(["n1"]);
        world.create(&periodic(&json!({ "crons": ["0 * * * *"] })));
        world.advance(Duration::from_mins(61)).await;
        tokio::time::advance(Duration::from_hours(missed)).await;
        world.elect_another();
        world.settle();
        let mut expected = vec![9];
        // Only the newest of those that were missed.
        expected.extend((missed > 0).then(|| 9 + i8::try_from(missed).unwrap()));
        assert_eq!(launches(&world), on_the_hour(&expected), "{missed} were missed");
        world.advance(Duration::from_hours(1)).await;
        expected.push(10 + i8::try_from(missed).unwrap());
        assert_eq!(launches(&world), on_the_hour(&expected), "{missed} were missed");
    }
}

#[tokio::test(start_paused = true)]
async fn s_220_a_launch_that_was_missed_waits_for_the_one_that_runs_where_overlap_is_prohibited() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&periodic(&json!({ "crons": ["0 * * * *"], "prohibitOverlap": true })));
    world.live(Duration::from_mins(61)).await;
    // The child ends, and two launches are missed, while no controller runs.
    end_all(&world);
    tokio::time::advance(Duration::from_hours(2)).await;
    world.elect_another();
    world.live(Duration::from_secs(20)).await;
    assert_eq!(launches(&world), on_the_hour(&[9, 11]), "exactly one launch at once");
}

#[tokio::test(start_paused = true)]
async fn what_was_left_out_by_one_leader_is_not_made_up_for_by_the_next() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&periodic(&json!({ "crons": ["0 * * * *"], "prohibitOverlap": true })));
    world.live(Duration::from_mins(121)).await;
    end_all(&world);
    world.elect_another();
    world.live(Duration::from_mins(10)).await;
    assert_eq!(launches(&world), on_the_hour(&[9]), "the launch of 10 o'clock was decided on");
}

#[tokio::test(start_paused = true)]
async fn a_stopped_a_deleted_or_a_switched_off_job_launches_nothing_more() {
    type Change = fn(&World);
    let cases: [(&str, Change); 3] = [
        ("stopped", |world| world.change_job("clean", &json!({ "stop": true }))),
        ("off", |world| world.change_job("clean", &json!({ "periodic": { "enabled": false } }))),
        ("deleted", |world| world.delete::<Job>(&in_default("clean"))),
    ];
    for (what, change) in cases {
        let mut world = World::with_nodes(["n1"]);
        world.create(&periodic(&json!({ "crons": ["0 * * * *"] })));
        world.live(Duration::from_mins(30)).await;
        change(&world);
        world.live(Duration::from_hours(2)).await;
        assert_eq!(launches(&world), Vec::<String>::new(), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn s_146_the_stop_of_a_periodic_job_leaves_its_launches_alone() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&periodic(&json!({ "crons": ["0 * * * *"] })));
    world.live(Duration::from_mins(61)).await;
    world.change_job("clean", &json!({ "stop": true }));
    world.live(Duration::from_mins(1)).await;
    assert_eq!(world.the::<Job>("clean").status.unwrap().phase, JobPhase::Dead);
    let alloc = world.allocs().remove(0);
    assert_eq!((alloc.spec.desired_status.as_str(), world.allocs().len()), ("run", 1));
}

#[tokio::test(start_paused = true)]
async fn launches_of_a_schedule_that_has_been_changed_were_not_missed() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&periodic(&json!({ "crons": ["0 3 * * *"] })));
    world.advance(Duration::from_mins(90)).await;
    // At 09:30 it would have been due at 09:00.
    world.change_job("clean", &json!({ "periodic": { "crons": ["0 * * * *"] } }));
    world.advance(Duration::from_mins(10)).await;
    assert_eq!(launches(&world), Vec::<String>::new());
    world.advance(Duration::from_mins(21)).await;
    assert_eq!(launches(&world), on_the_hour(&[10]));
}

#[tokio::test(start_paused = true)]
async fn a_launch_whose_create_fails_is_tried_again_until_it_is_there_once() {
    for (error, within) in [
        (unavailable(), Duration::from_secs(2)),
        (conflict(), Duration::from_secs(2)),
        (StoreError::Timeout(Duration::from_secs(5)), Duration::from_secs(2)),
        (StoreError::Forbidden("a quota".to_owned()), Duration::from_secs(61)),
    ] {
        for is_lost in [false, true] {
            let mut world = World::with_nodes(["n1"]);
            world.create(&periodic(&json!({ "crons": ["0 * * * *"] })));
            world.advance(Duration::from_mins(59)).await;
            if is_lost {
                world.store.lose_answer("create Job", error.clone());
            } else {
                world.store.refuse("create Job", error.clone());
            }
            world.advance(Duration::from_mins(1) + within).await;
            assert_eq!(launches(&world), on_the_hour(&[9]), "{error}, lost: {is_lost}");
            let n_told = usize::from(matches!(error, StoreError::Forbidden(_)));
            assert_eq!(
                told(&world, "Warning LaunchFailed clean: the launch of 2026-03-02T09:00:00Z"),
                n_told,
                "{error}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_of_the_name_of_a_launch_is_left_alone_and_the_launch_waits() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&periodic(&json!({ "crons": ["0 10 * * *"] })));
    world.advance(Duration::from_mins(119)).await;
    let at = "2026-03-02T10:00:00Z".parse::<Timestamp>().unwrap();
    let name = drover_core::periodic::child("clean", &world.the::<Job>("clean").spec, at).name;
    world.create(&job(&name, &json!({ "type": "batch", "groups": [group("other", 1)] })));
    world.advance(Duration::from_mins(5)).await;
    let stranger: Job = world.the(&name);
    assert_eq!((stranger.metadata.owner_references, stranger.spec.groups[0].name.as_str()), (None, "other"));
    world.delete::<Job>(&in_default(&name));
    world.live(Duration::from_mins(1)).await;
    assert_eq!(launches(&world), on_the_hour(&[10]));
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_periodic_job_says_when_it_is_launched_next_and_was_last() {
    let mut world = World::with_nodes(["n1"]);
    world.create(&periodic(&json!({ "crons": ["0 * * * *"] })));
    world.advance(Duration::from_mins(61)).await;
    let status = world.the::<Job>("clean").status.unwrap();
    let [last, next] = ["2026-03-02T09:00:00Z", "2026-03-02T10:00:00Z"];
    assert_eq!(status.last_launch.map(|at| at.to_string()).as_deref(), Some(last));
    assert_eq!(status.next_launch.map(|at| at.to_string()).as_deref(), Some(next));
    assert_eq!(status.columns.next_launch, next);
    assert_eq!(status.phase, JobPhase::Running);
    assert_eq!(condition(&world, "clean", JobConditionType::Armed).as_deref(), Some("True Waiting"));
    world.change_job("clean", &json!({ "periodic": { "enabled": false } }));
    world.advance(Duration::from_mins(1)).await;
    assert_eq!(condition(&world, "clean", JobConditionType::Armed).as_deref(), Some("False ScheduleOff"));
    assert_eq!(world.the::<Job>("clean").status.unwrap().next_launch, None);
}
