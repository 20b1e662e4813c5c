//! Taking volumes out, detaching them, and waking those whose release got stuck (sections 4 and 7).

use std::time::Duration;

use drover_api::allocation::DesiredStatus;
use jiff::SignedDuration;

use super::*;
use crate::volume::user_actions::{ActionRefusal, Claims, deregister, detach, has_past_claims, stuck};
use crate::volume::watcher::{Pace, Watcher};

/// V-053
#[test]
fn a_volume_in_use_is_taken_out_only_by_force_and_when_nobody_uses_it() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    let may = |stage: &Stage, claims| deregister(&stage.world.view, &v1(), claims);
    assert_eq!(may(&stage, Claims::MustBeFree), Ok(()));
    stage.holder("a1", "n-1", ClaimMode::Write);
    let refused = may(&stage, Claims::MustBeFree).expect_err("in use");
    expect_test::expect![
        "volume shop/v1 is in use by allocation a1 on node n-1; stop its job and wait for the release"
    ]
    .assert_eq(&refused.to_string());
    assert_eq!(may(&stage, Claims::MayBeOver), Err(refused));
    let ends: [&dyn Fn(&mut Stage); 3] = [
        &|stage| stage.end("a1"),
        &|stage| stage.change_alloc("a1", |alloc| alloc.desired = DesiredStatus::Stop),
        &|stage| drop(stage.world.view.remove_alloc(&AllocKey::new("shop", "a1"))),
    ];
    for end in ends {
        let mut stage = Stage::new(AccessMode::SingleNodeWriter);
        stage.holder("a1", "n-1", ClaimMode::Write);
        end(&mut stage);
        assert!(may(&stage, Claims::MustBeFree).is_err(), "a past claim is a claim");
        // What is answered has no room for a call: the object goes, and nothing else happens.
        assert_eq!(may(&stage, Claims::MayBeOver), Ok(()));
    }
}

/// V-054
#[test]
fn part_of_an_id_names_no_volume() {
    let stage = Stage::new(AccessMode::SingleNodeWriter);
    for id in ["v", "", "v11", "V1"] {
        let volume = ObjectKey::new("shop", id);
        for claims in [Claims::MustBeFree, Claims::MayBeOver] {
            let refused = deregister(&stage.world.view, &volume, claims);
            assert_eq!(refused, Err(ActionRefusal::NotFound { volume: volume.clone() }));
        }
    }
}

/// V-055
#[test]
fn a_detach_releases_what_is_past_on_that_node() {
    let mut stage = Stage::new(AccessMode::MultiNodeMultiWriter);
    for (alloc, on) in [("a1", "n-1"), ("a2", "n-1"), ("a3", "n-2"), ("a4", "n-1")] {
        stage.holder(alloc, on, ClaimMode::Write);
    }
    for alloc in ["a1", "a2", "a3"] {
        stage.end(alloc);
    }
    let claims = detach(&stage.world.view, &v1(), &"n-1".into()).expect("a volume");
    assert_eq!(claims, ["a1", "a2"]);
    let calls: Vec<Script> = claims.iter().map(|alloc| stage.release(alloc)).collect();
    assert!(calls.iter().all(|script| script.n("node n-1") == 1 && script.n("node ") == 1));
    assert_eq!((stage.state("a3"), stage.state("a4")), (Some(ClaimState::Taken), Some(ClaimState::Taken)));
    let unknown = ObjectKey::new("shop", "v2");
    assert_eq!(detach(&stage.world.view, &unknown, &"n-1".into()), Err(ActionRefusal::NotFound { volume: unknown }));
}

/// V-051
#[test]
fn volumes_whose_release_is_stuck_are_woken_when_they_are_old() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    stage.end("a1");
    let age = SignedDuration::from_mins(5);
    for (minutes, age, wanted) in
        [(10, age, 1), (1, age, 0), (1, SignedDuration::ZERO, 1), (0, SignedDuration::ZERO, 1)]
    {
        let at = now() - SignedDuration::from_mins(minutes);
        stage.change_status(|status| status.modified_at = Some(at));
        let claims = stage.status().claims;
        let mut watcher = Watcher::new(Pace::default());
        for volume in stuck(&stage.world.view, age, now()) {
            stage.store(updated(&stage.status(), &[Update::Touch], now()));
            watcher.changed(&volume, Duration::ZERO);
        }
        assert_eq!(watcher.look(Duration::ZERO).into_iter().count(), wanted, "{minutes} minutes");
        assert_eq!(stage.status().modified_at == Some(now()), wanted == 1 || minutes == 0);
        assert_eq!(stage.status().claims, claims);
    }
    assert!(has_past_claims(&stage.world.view, &v1()), "a person who names it does not wait for its age");
}

/// V-052
#[test]
fn volumes_without_past_claims_are_not_written() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    assert_eq!(stuck(&stage.world.view, SignedDuration::ZERO, now()), []);
    stage.holder("a1", "n-1", ClaimMode::Write);
    assert_eq!(stuck(&stage.world.view, SignedDuration::ZERO, now()), []);
    assert!(!has_past_claims(&stage.world.view, &v1()));
}
