//! Slots of a group (3.6), beside a list that is searched from the front.

use std::collections::BTreeSet;
use std::sync::Arc;

use fastrand::Rng;

use crate::model::Alloc;
use crate::scheduler::reconcile::names::Names;
use crate::scheduler::tests::{World, key, spec};

/// Allocations that hold these slots.
fn holding(slots: &[i64]) -> Vec<Arc<Alloc>> {
    let mut world = World::new(&spec(1));
    world.allocs(slots.iter().copied(), |_| {});
    world.view.allocs_of_job(&key()).cloned().collect()
}

#[test]
fn new_allocations_get_the_lowest_free_slots() {
    for (held, count, wanted) in [
        (&[][..], 3, &[0, 1, 2][..]),
        (&[0, 2], 4, &[1, 3]),
        (&[5], 3, &[0, 1, 2]),
        (&[0, 1], 2, &[0, 1, 0]),
        (&[1, 1], 3, &[0, 2]),
    ] {
        let held_by = holding(held);
        let mut names = Names::new(held_by.iter(), count);
        let got: Vec<i64> = wanted.iter().map(|_| names.next()).collect();
        assert_eq!(got, wanted, "{held:?} of {count}");
    }
}

#[test]
fn a_successor_takes_over_its_slot_unless_another_holds_it_too() {
    for (held, count, from, wanted) in [
        (&[0, 1][..], 3, 1, 1),
        (&[1, 1], 3, 1, 0),
        (&[0, 1, 1], 3, 1, 2),
        // Without a free slot it is shared further.
        (&[0, 0, 1], 2, 0, 0),
        (&[7], 3, 7, 7),
    ] {
        let held_by = holding(held);
        assert_eq!(Names::new(held_by.iter(), count).inherit(from), wanted, "{held:?} of {count}");
    }
}

#[test]
fn slots_that_are_given_up_and_taken_are_those_of_a_plain_list() {
    let mut rng = Rng::with_seed(36);
    for _ in 0..500 {
        let count = rng.i64(1..8);
        let held: Vec<i64> = (0..rng.usize(..8)).map(|_| rng.i64(0..10)).collect();
        let held_by = holding(&held);
        let mut names = Names::new(held_by.iter(), count);
        let mut list = held.clone();
        for _ in 0..10 {
            if rng.bool() && !list.is_empty() {
                let slot = list.swap_remove(rng.usize(..list.len()));
                names.release(slot);
            } else if let Some(free) = (0..count).find(|slot| !list.contains(slot)) {
                assert_eq!(names.next(), free, "{held:?} of {count}, now {list:?}");
                list.push(free);
            } else {
                break;
            }
        }
    }
}

#[test]
fn canaries_take_slots_of_updates_then_free_ones_then_those_above_the_count() {
    for (held, updated, existing, wanted) in [
        (&[0, 1, 2, 3][..], &[1, 2][..], &[][..], &[1, 2, 4, 5][..]),
        (&[0, 1], &[0], &[], &[0, 2, 3, 4]),
        (&[0, 1, 2, 3], &[1, 2], &[1], &[2, 4, 5, 6]),
        (&[], &[], &[0, 4], &[1, 2, 3, 5]),
    ] {
        let held_by = holding(held);
        let existing: BTreeSet<i64> = existing.iter().copied().collect();
        let got = Names::new(held_by.iter(), 4).canaries(4, &existing, updated.iter().copied());
        assert_eq!(got, wanted, "held {held:?}, updated {updated:?}, existing {existing:?}");
    }
}
