//! Which groups a promotion is for, and what refuses it.

use fastrand::Rng;

use super::*;
use crate::deployment::request::promoted_groups;

fn short(group: &str, healthy: i64, needed: i64) -> Short {
    Short { group: group.to_owned(), healthy, needed }
}

#[test]
fn a_group_is_short_below_its_canaries_and_no_longer_once_it_is_promoted() {
    for (wanted, healthy, is_promoted, is_short) in [
        (0, 0, false, false),
        (1, 0, false, true),
        (2, 1, false, true),
        (2, 2, false, false),
        (2, 3, false, false),
        (2, 0, true, false),
    ] {
        let mut world = World::new(&[("A", 3, wanted, "0s")]);
        world.group("A").promoted = is_promoted;
        let found = promoted_groups(&all(), &world.status.groups, &BTreeMap::from([("A".to_owned(), healthy)]));
        let refused = RequestRefusal::NotHealthy(vec![short("A", healthy, wanted)]);
        let expected = if is_short { Err(refused) } else { Ok(vec!["A".to_owned()]) };
        assert_eq!(found, expected, "{healthy} of {wanted}, promoted: {is_promoted}");
    }
}

#[test]
fn a_group_that_is_not_there_is_told_before_canaries_that_are_not_healthy() {
    let world = World::new(&[("A", 3, 1, "0s"), ("B", 3, 0, "0s")]);
    let asked = |request: &Promote| {
        promoted_groups(request, &world.status.groups, &BTreeMap::new()).expect_err("refused").to_string()
    };
    let unknown = "no such group in this deployment: C, D; it has A, B";
    assert_eq!(asked(&only(&["A", "C", "D"])), unknown);
    let both = Promote { all: true, groups: vec!["C".to_owned(), "D".to_owned()] };
    assert_eq!(asked(&both), unknown, "all groups and some that are not there");
}

#[test]
fn a_promotion_takes_all_groups_that_it_names_or_none() {
    let (mut n_taken, mut n_short, mut n_unknown) = (0, 0, 0);
    for seed in 0..2_000 {
        let mut rng = Rng::with_seed(seed);
        let names = ["A", "B", "C"];
        let mut world = World::new(&names.map(|name| (name, 3, rng.i64(0..3), "0s")));
        let mut healthy = BTreeMap::new();
        for name in names {
            world.group(name).promoted = rng.usize(..4) == 0;
            // A group without healthy canaries is not listed at all.
            if rng.usize(..4) > 0 {
                healthy.insert(name.to_owned(), rng.i64(1..3));
            }
        }
        let mut asked: Vec<String> = names.iter().filter(|_| rng.bool()).map(ToString::to_string).collect();
        if rng.usize(..6) == 0 {
            asked.push("Z".to_owned());
        }
        let request = Promote { all: rng.bool(), groups: asked };
        let (mut taken, mut lacking) = (Vec::new(), Vec::new());
        for name in names.iter().filter(|name| request.all || request.groups.iter().any(|one| one == *name)) {
            let state = &world.status.groups[*name];
            let has = healthy.get(*name).copied().unwrap_or_default();
            taken.push((*name).to_owned());
            if !state.promoted && state.desired_canaries > has {
                lacking.push(short(name, has, state.desired_canaries));
            }
        }
        let wanted = if request.groups.contains(&"Z".to_owned()) {
            n_unknown += 1;
            let known = names.map(str::to_owned).to_vec();
            Err(RequestRefusal::UnknownGroup { unknown: vec!["Z".to_owned()], known })
        } else if lacking.is_empty() {
            n_taken += 1;
            Ok(taken)
        } else {
            n_short += 1;
            Err(RequestRefusal::NotHealthy(lacking))
        };
        assert_eq!(promoted_groups(&request, &world.status.groups, &healthy), wanted, "seed {seed}: {request:?}");
    }
    assert!(n_taken > 100 && n_short > 100 && n_unknown > 100, "{n_taken} {n_short} {n_unknown}");
}
