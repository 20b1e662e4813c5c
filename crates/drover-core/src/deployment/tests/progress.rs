//! When a group of a deployment is done, which groups are late, and what the counters count.

use fastrand::Rng;

use super::*;
use crate::deployment::progress::{cutoff, overdue};

/// A group's state: total, canaries, healthy, whether promoted, and the second of its deadline.
fn state(total: i64, canaries: i64, healthy: i64, promoted: bool, by: Option<i32>) -> GroupState {
    GroupState {
        desired_total: total,
        desired_canaries: canaries,
        healthy_allocs: healthy,
        promoted,
        require_progress_by: by.map(|by| at(f64::from(by))),
        ..GroupState::default()
    }
}

#[test]
fn a_group_is_done_with_what_it_needs_and_no_canaries_to_promote() {
    for (state, wanted_now, wanted) in [
        (state(3, 0, 2, false, None), None, false),
        (state(3, 0, 3, false, None), None, true),
        (state(3, 0, 4, false, None), Some(9), true),
        (state(3, 0, 2, false, None), Some(2), true),
        (state(3, 0, 1, false, None), Some(2), false),
        (state(3, 0, 0, false, None), Some(0), true),
        (state(3, 1, 3, false, None), None, false),
        (state(3, 1, 3, true, None), None, true),
        (state(3, 1, 2, true, None), None, false),
        (state(0, 0, 0, false, None), None, true),
    ] {
        assert_eq!(is_done(&state, wanted_now), wanted, "{state:?}, {wanted_now:?}");
    }
}

#[test]
fn a_group_is_late_from_its_deadline_on_unless_it_is_done_or_waits_for_a_person() {
    for (state, wanted) in [
        (state(3, 0, 1, false, Some(9)), true),
        (state(3, 0, 1, false, Some(10)), true),
        (state(3, 0, 1, false, Some(11)), false),
        (state(3, 0, 1, false, None), true),
        (state(3, 0, 3, false, Some(9)), false),
        (state(3, 2, 1, false, Some(9)), true),
        (state(3, 2, 2, false, Some(9)), false),
        (state(3, 2, 2, true, Some(9)), true),
    ] {
        let groups = BTreeMap::from([("A".to_owned(), state)]);
        let counts = BTreeMap::from([("A".to_owned(), 3)]);
        assert_eq!(overdue(&groups, &counts, at(10.0)).next().is_some(), wanted, "{groups:?}");
    }
}

#[test]
fn the_cutoff_is_the_least_deadline_of_the_groups_that_have_something_to_do() {
    let mut n_none = 0;
    for seed in 0..1_000 {
        let mut rng = Rng::with_seed(seed);
        let (mut groups, mut counts, mut wanted) = (BTreeMap::new(), BTreeMap::new(), None::<i32>);
        for name in ["A", "B", "C", "D"] {
            let (total, canaries, healthy) = (rng.i64(0..4), rng.i64(0..2), rng.i64(0..4));
            let promoted = rng.bool();
            let by = (rng.usize(..4) > 0).then(|| rng.i32(0..9));
            let count = rng.bool().then(|| rng.i64(0..4));
            counts.extend(count.map(|count| (name.to_owned(), count)));
            groups.insert(name.to_owned(), state(total, canaries, healthy, promoted, by));
            let waits = canaries > 0 && !promoted;
            let lacks = healthy < total && count.is_none_or(|count| healthy < count);
            if let Some(by) = by.filter(|_| waits || lacks) {
                wanted = Some(wanted.map_or(by, |least| least.min(by)));
            }
        }
        n_none += i32::from(wanted.is_none());
        assert_eq!(seconds(cutoff(&groups, &counts)), wanted.map(f64::from), "seed {seed}: {groups:#?} {counts:?}");
    }
    assert!((20..500).contains(&n_none), "{n_none}");
}

#[test]
fn one_that_failed_after_it_was_healthy_is_not_counted_and_one_that_completed_is() {
    for (client, wanted) in [
        (ClientStatus::Running, 1),
        (ClientStatus::Complete, 1),
        (ClientStatus::Lost, 1),
        (ClientStatus::Unknown, 1),
        (ClientStatus::Failed, 0),
    ] {
        let mut world = World::new(&[("A", 2, 0, "10m")]);
        world.alloc_with("A", Some((true, 1.0)), |alloc| alloc.client = client);
        assert_eq!(world.step_at(2.0).status.groups["A"].healthy_allocs, wanted, "{client}");
    }
}

#[test]
fn a_slot_counts_once_however_often_it_was_replaced_and_a_circle_ends() {
    for (previous, wanted) in [
        (&[None, None, None][..], 3),
        (&[None, Some("A-0"), Some("A-1")], 1),
        (&[None, Some("A-0"), None], 2),
        (&[Some("gone"), Some("gone"), None], 3),
    ] {
        let mut world = World::new(&[("A", 3, 0, "10m")]);
        for before in previous {
            world.alloc_with("A", Some((true, 1.0)), |alloc| alloc.previous = before.map(Into::into));
        }
        assert_eq!(world.step_at(2.0).status.groups["A"].healthy_allocs, wanted, "{previous:?}");
    }
    let mut world = World::new(&[("A", 2, 0, "10m")]);
    world.alloc_with("A", Some((true, 1.0)), |alloc| alloc.previous = Some("A-1".into()));
    world.alloc_with("A", None, |alloc| alloc.previous = Some("A-0".into()));
    assert_eq!(world.step_at(2.0).status.groups["A"].healthy_allocs, 1);
}

#[test]
fn what_was_collected_still_counts_as_placed_and_canaries_stay_listed_in_their_order() {
    let mut world = World::new(&[("A", 3, 2, "10m")]);
    world.canary("A", None);
    world.canary("A", None);
    world.alloc_with("A", None, |alloc| (alloc.canary, alloc.desired) = (true, DesiredStatus::Stop));
    world.advance(1.0);
    assert_eq!(world.status.groups["A"].placed_canaries, ["A-0", "A-1"], "one that is stopped is no new canary");
    world.allocs.remove(0);
    world.allocs.truncate(1);
    world.advance(2.0);
    assert_eq!(world.status.groups["A"].placed_canaries, ["A-0", "A-1"]);
    assert_eq!(world.status.groups["A"].placed_allocs, 3);
}
