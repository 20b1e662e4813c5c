//! When volumes are looked at, and how updates become writes (section 4).

use std::time::Duration;

use super::*;
use crate::volume::batch::{Batches, MOST_CHANGES, TOLD_WITHIN, WINDOW};
use crate::volume::claim::{past, read};
use crate::volume::watcher::{Pace, Watcher};

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Looks at everything that is due from now until then, each look taking no time, and says when it looked at what.
fn looks(watcher: &mut Watcher, now: Duration, until: Duration) -> Vec<(u128, String)> {
    let mut seen = Vec::new();
    while let Some(at) = watcher.wake_at().filter(|at| *at <= until) {
        let at = at.max(now);
        while let Some(volume) = watcher.look(at) {
            seen.push((at.as_millis(), volume.to_string()));
            watcher.finish(&volume, at);
        }
    }
    seen
}

fn watcher() -> Watcher {
    Watcher::new(Pace::default())
}

/// V-019
#[test]
fn a_new_leader_releases_what_the_last_one_left() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    stage.end("a1");
    stage.change_status(|status| status.claims[0].state = ClaimState::NodeDetached);
    let mut watcher = watcher();
    watcher.changed(&v1(), Duration::ZERO);
    let (mut n_releases, mut n_looks) = (0, 0);
    while let Some(at) = watcher.wake_at() {
        let Some(volume) = watcher.look(at) else { continue };
        n_looks += 1;
        let seen = read(&stage.world.view, &volume).expect("a volume");
        let claims: Vec<String> = past(&seen).map(|claim| claim.alloc_id.clone()).collect();
        for alloc in claims {
            let script = stage.release(&alloc);
            assert_eq!(script.calls(), (0, 1));
            n_releases += 1;
            for _ in 0..script.n("ready-to-free") {
                watcher.changed(&volume, at);
            }
        }
        watcher.finish(&volume, at);
    }
    assert_eq!((n_releases, n_looks, stage.state("a1")), (1, 2, None), "its own write makes it look once more");
}

/// V-020
#[test]
fn idle_volumes_are_looked_at_once_and_forgotten() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    let (spec, status) = (stage.spec(), stage.status());
    for n in 0..50 {
        stage.put_volume(&ObjectKey::new("shop", format!("v{n}")), spec.clone(), status.clone());
    }
    let mut watcher = watcher();
    for (key, _) in stage.world.view.volumes() {
        watcher.changed(key, Duration::ZERO);
    }
    let seen = looks(&mut watcher, Duration::ZERO, Duration::ZERO);
    assert_eq!((seen.len(), watcher.n_active()), (50, 50));
    // A look without past claims asks for nothing: neither a write nor a call.
    let n_past: usize = stage
        .world
        .view
        .volumes()
        .map(|(key, _)| read(&stage.world.view, key).map_or(0, |status| past(&status).count()))
        .sum();
    assert_eq!(n_past, 0);
    assert_eq!(watcher.wake_at(), Some(Pace::default().settle_after));
    assert_eq!(looks(&mut watcher, ms(1), Pace::default().settle_after), []);
    assert_eq!((watcher.n_active(), watcher.wake_at()), (0, None));
}

/// V-021
#[test]
fn a_volume_that_settled_is_watched_again_when_it_changes() {
    let mut watcher = watcher();
    watcher.changed(&v1(), Duration::ZERO);
    looks(&mut watcher, Duration::ZERO, ms(600_000));
    assert_eq!(watcher.n_active(), 0);
    watcher.changed(&v1(), ms(700_000));
    assert_eq!(looks(&mut watcher, ms(700_000), ms(700_500)), [(700_000, "shop/v1".to_owned())]);
    assert_eq!(watcher.n_active(), 1);
}

/// V-022
#[test]
fn many_changes_are_few_looks() {
    let mut watcher = watcher();
    let mut seen = Vec::new();
    for n in 0..20 {
        let now = ms(n * 50);
        watcher.changed(&v1(), now);
        seen.extend(looks(&mut watcher, now, now));
    }
    seen.extend(looks(&mut watcher, ms(950), ms(10_000)));
    let times: Vec<u128> = seen.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [0, 50, 100, 1000]);
    for n in 0..100 {
        let now = ms(20_000 + n * 100);
        watcher.changed(&v1(), now);
        seen.extend(looks(&mut watcher, now, now));
    }
    assert_eq!(seen.len() - 4, 12, "three at once, then one each second: {seen:?}");
}

#[test]
fn changes_during_a_look_are_one_more_look() {
    let mut watcher = watcher();
    watcher.changed(&v1(), ms(0));
    assert_eq!(watcher.look(ms(0)), Some(v1()));
    watcher.changed(&v1(), ms(1));
    watcher.changed(&v1(), ms(2));
    assert_eq!((watcher.look(ms(3)), watcher.wake_at()), (None, None), "one look at a time");
    watcher.finish(&v1(), ms(400_000));
    assert_eq!(looks(&mut watcher, ms(400_000), ms(400_000)).len(), 1);
    assert_eq!(watcher.wake_at(), Some(ms(400_000) + Pace::default().settle_after), "each look begins the time anew");
}

/// V-023
#[test]
fn a_change_at_the_end_of_the_settle_time_is_looked_at() {
    let settle = Pace::default().settle_after;
    for at in [settle.saturating_sub(ms(1)), settle, settle + ms(1)] {
        for is_ended_first in [false, true] {
            let mut watcher = watcher();
            watcher.changed(&v1(), Duration::ZERO);
            looks(&mut watcher, Duration::ZERO, Duration::ZERO);
            if is_ended_first {
                assert_eq!(watcher.look(at), None);
            }
            watcher.changed(&v1(), at);
            assert_eq!(watcher.look(at), Some(v1()), "{at:?}");
        }
    }
}

/// V-024
#[test]
fn a_volume_that_is_gone_is_not_watched() {
    for is_looking in [false, true] {
        let mut watcher = watcher();
        watcher.changed(&v1(), Duration::ZERO);
        assert_eq!(is_looking.then(|| watcher.look(Duration::ZERO)).flatten().is_some(), is_looking);
        watcher.gone(&v1());
        watcher.finish(&v1(), ms(1));
        assert_eq!((watcher.n_active(), watcher.wake_at(), watcher.look(ms(9_000))), (0, None, None));
    }
}

/// V-025
#[test]
fn namespaces_may_hold_the_same_id() {
    let mut watcher = watcher();
    let other = ObjectKey::new("bank", "v1");
    watcher.changed(&v1(), Duration::ZERO);
    watcher.changed(&other, Duration::ZERO);
    let seen = looks(&mut watcher, Duration::ZERO, Duration::ZERO);
    assert_eq!((seen.len(), watcher.n_active()), (2, 2));
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    let (spec, status) = (stage.spec(), stage.status());
    stage.holder("a1", "n-1", ClaimMode::Write);
    stage.end("a1");
    stage.put_volume(&other, spec, status);
    let n_past = |key| read(&stage.world.view, key).map(|status| past(&status).count());
    assert_eq!((n_past(&v1()), n_past(&other)), (Some(1), Some(0)));
    watcher.gone(&other);
    watcher.changed(&v1(), ms(1));
    assert_eq!(looks(&mut watcher, ms(1), ms(1)), [(1, "shop/v1".to_owned())]);
}

/// V-050
#[test]
fn many_claims_that_end_together_are_few_writes() {
    let mut stage = Stage::new(AccessMode::MultiNodeMultiWriter);
    let names: Vec<String> = (0..150).map(|n| format!("a{n:03}")).collect();
    for name in &names {
        stage.holder(name, "n-1", ClaimMode::Write);
    }
    for name in &names {
        stage.end(name);
    }
    let mut batches = Batches::default();
    let (mut now_ms, mut sizes) = (0, Vec::new());
    while !stage.status().claims.is_empty() {
        for name in &names {
            let (spec, status) = (stage.spec(), stage.status());
            let facts = ReleaseFacts {
                volume: &v1(),
                spec: &spec,
                status: &status,
                alloc_id: name,
                view: &stage.world.view,
                plugin: stage.plugins.get("p"),
                unmount: Unmount::Unknown,
                force: Force::No,
                tried: &[],
                attached: AttachedBy::Plugin,
            };
            let reached = match step(&facts).expect("a step") {
                ReleaseStep::Checkpoint(reached) => reached,
                ReleaseStep::Node(call) => call.answered(NodeAnswer::Done).expect("a state"),
                ReleaseStep::Controller(_) | ReleaseStep::Cluster => ClaimState::ReadyToFree,
                ReleaseStep::Freed => continue,
                ReleaseStep::Wait(_) | ReleaseStep::InUse => panic!("{name} is not released"),
            };
            batches.add(
                &v1(),
                Update::Release { alloc_id: name.clone(), state: reached, error: String::new() },
                ms(now_ms),
            );
        }
        while let Some(at) = batches.wake_at() {
            assert!(at <= ms(now_ms) + WINDOW);
            now_ms = u64::try_from(at.as_millis()).expect("a small number");
            let Some((volume, updates)) = batches.next(at) else { panic!("nothing at {at:?}") };
            assert!(updates.len() <= MOST_CHANGES);
            assert_eq!(batches.next(at), None, "one write of a volume at a time");
            sizes.push(updates.len());
            stage.store(updated(&stage.status(), &updates, now()));
            batches.written(&volume);
        }
    }
    assert_eq!(sizes, [100, 50].repeat(3), "three checkpoints for each claim");
    assert_eq!(batches.n_waiting(), 0);
}

#[test]
fn updates_wait_a_quarter_of_a_second_for_others() {
    let mut batches = Batches::default();
    let to = |alloc: &str, state| Update::Release { alloc_id: alloc.to_owned(), state, error: String::new() };
    batches.add(&v1(), to("a1", ClaimState::Unpublishing), ms(0));
    batches.add(&v1(), to("a1", ClaimState::NodeDetached), ms(100));
    batches.add(&v1(), Update::Touch, ms(200));
    batches.add(&v1(), Update::Touch, ms(201));
    assert_eq!((batches.next(ms(249)), batches.wake_at()), (None, Some(ms(250))));
    let written = batches.next(ms(250));
    assert_eq!(written, Some((v1(), vec![to("a1", ClaimState::NodeDetached), Update::Touch])));
    batches.add(&v1(), Update::Touch, ms(260));
    assert_eq!((batches.next(ms(900)), batches.wake_at()), (None, None), "its write is under way");
    batches.written(&v1());
    assert_eq!(batches.next(ms(900)), Some((v1(), vec![Update::Touch])));
    batches.written(&v1());
    assert_eq!((batches.n_waiting(), batches.wake_at()), (0, None));
    batches.close(&v1(), ms(950));
    assert_eq!(batches.n_waiting(), 0, "of a volume for which nothing waits nothing is kept");
    batches.add(&v1(), to("a1", ClaimState::ReadyToFree), ms(1000));
    batches.close(&v1(), ms(1000));
    assert_eq!(batches.next(ms(1000)), Some((v1(), vec![to("a1", ClaimState::ReadyToFree)])), "nobody else comes");
    batches.written(&v1());
    batches.add(&v1(), Update::Touch, ms(2000));
    assert_eq!(batches.wake_at(), Some(ms(2250)), "the next ones wait again");
    batches.forget(&v1());
    batches.add_within(&v1(), to("a1", ClaimState::NodeDetached), TOLD_WITHIN, ms(3000));
    assert_eq!(batches.wake_at(), Some(ms(63_000)), "it waits for its turn");
    batches.add(&v1(), to("a2", ClaimState::NodeDetached), ms(4000));
    assert_eq!(batches.wake_at(), Some(ms(4250)), "and is told with what does not wait");
    batches.forget(&v1());
    assert_eq!((batches.n_waiting(), batches.wake_at(), batches.next(ms(9000))), (0, None, None));
}
