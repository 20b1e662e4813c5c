//! Taking claims, what makes them past, and what updates do to them (sections 1.1 and 3).

use drover_api::allocation::DesiredStatus;
use jiff::SignedDuration;
use serde_json::json;

use super::*;
use crate::volume::claim::{MOST_CLAIMS, past, read, wanted};
use crate::volume::columns::with_columns;

fn modes(stage: &Stage) -> (Option<AccessMode>, Option<AttachmentMode>) {
    let status = stage.status();
    (status.access_mode, status.attachment_mode)
}

fn max_claims(mode: ClaimMode) -> Result<bool, ClaimError> {
    Err(ClaimError::MaxClaims { volume: v1(), mode })
}

fn unschedulable(mode: ClaimMode) -> Result<bool, ClaimError> {
    Err(ClaimError::Unschedulable { volume: v1(), mode })
}

/// V-001
#[test]
fn the_first_claim_sets_the_current_modes() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    let status = stage.status();
    let [claim] = &status.claims[..] else { panic!("{:?}", status.claims) };
    assert_eq!((&*claim.alloc_id, claim.mode, claim.state), ("a1", ClaimMode::Write, ClaimState::Taken));
    assert_eq!((&*claim.node_name, &*claim.external_node_id), ("n-1", "i-n-1"));
    assert_eq!(modes(&stage), (Some(AccessMode::SingleNodeWriter), Some(AttachmentMode::FileSystem)));
    assert_eq!(status.modified_at, Some(now()));
}

/// V-002
#[test]
fn who_finds_no_free_claim_may_try_again_and_gets_it_once_it_is_free() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    stage.alloc("a2", "n-2");
    let refused = stage.claim("a2", ClaimMode::Write);
    assert_eq!(refused, max_claims(ClaimMode::Write));
    assert!(refused.is_err_and(|error| error.is_retryable()));
    stage.end("a1");
    assert_eq!(stage.claim("a2", ClaimMode::Write), max_claims(ClaimMode::Write), "it is not released yet");
    stage.release("a1");
    assert_eq!(stage.claim("a2", ClaimMode::Write), Ok(true));
}

/// V-003
#[test]
fn a_reader_finds_no_free_claim_beside_the_writer_of_one_node() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    stage.alloc("a2", "n-1");
    assert_eq!(stage.claim("a2", ClaimMode::Read), max_claims(ClaimMode::Read));
}

/// V-004
#[test]
fn a_writer_of_one_node_may_come_beside_a_reader() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    stage.holder("a1", "n-1", ClaimMode::Read);
    stage.holder("a2", "n-1", ClaimMode::Write);
}

/// V-005
#[test]
fn many_nodes_may_read_what_one_writes() {
    let mut stage = Stage::new(AccessMode::MultiNodeSingleWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    for reader in ["a2", "a3", "a4"] {
        stage.holder(reader, "n-2", ClaimMode::Read);
    }
    stage.alloc("a5", "n-2");
    assert_eq!(stage.claim("a5", ClaimMode::Write), max_claims(ClaimMode::Write));
}

/// V-006
#[test]
fn many_may_write_where_the_mode_says_so() {
    let mut stage = Stage::new(AccessMode::MultiNodeMultiWriter);
    for writer in ["a1", "a2", "a3", "a4", "a5"] {
        stage.holder(writer, "n-1", ClaimMode::Write);
    }
}

/// V-007
#[test]
fn nobody_writes_to_what_is_for_readers() {
    let mut stage = Stage::new(AccessMode::MultiNodeReaderOnly);
    stage.alloc("a1", "n-1");
    assert_eq!(stage.claim("a1", ClaimMode::Write), unschedulable(ClaimMode::Write));
    stage.holder("a2", "n-1", ClaimMode::Read);
    assert_eq!(stage.claim("a1", ClaimMode::Write), unschedulable(ClaimMode::Write));
}

/// V-008
#[test]
fn a_repeated_claim_succeeds_although_the_plugin_died() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    stage.change_status(|status| status.schedulable = false);
    let before = stage.status();
    assert_eq!(stage.claim("a1", ClaimMode::Write), Ok(false));
    assert_eq!(stage.status(), before);
    stage.alloc("a2", "n-1");
    assert_eq!(stage.claim("a2", ClaimMode::Read), unschedulable(ClaimMode::Read));
}

/// V-009
#[test]
fn a_reader_that_wants_to_write_gives_its_read_claim_up() {
    for mode in [AccessMode::SingleNodeWriter, AccessMode::MultiNodeMultiWriter] {
        let mut stage = Stage::new(mode);
        stage.holder("a1", "n-1", ClaimMode::Read);
        assert_eq!(stage.claim("a1", ClaimMode::Write), Ok(true));
        let held: Vec<ClaimMode> = stage.status().claims.iter().map(|claim| claim.mode).collect();
        assert_eq!(held, [ClaimMode::Write]);
    }
}

/// V-010
#[test]
fn a_volume_in_use_as_files_is_no_block_device() {
    let mut stage = Stage::new(AccessMode::MultiNodeMultiWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    stage.alloc("a2", "n-2");
    let request =
        ClaimRequest { attachment_mode: AttachmentMode::BlockDevice, ..stage.request("a2", ClaimMode::Write) };
    let refused = take(&stage.world.view, &request, now()).expect_err("another attachment mode");
    expect_test::expect!["attachment mode cannot change while claimed: volume shop/v1 is used as file-system, and block-device is asked for; stop its users first, or ask for file-system"]
        .assert_eq(&refused.to_string());
    assert!(!refused.is_retryable());
}

/// V-011
#[test]
fn nobody_claims_for_an_unknown_allocation() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    let before = stage.status();
    let refused = Err(ClaimError::NoAlloc { volume: v1(), alloc: AllocKey::new("shop", "a1") });
    assert_eq!(stage.claim("a1", ClaimMode::Write), refused);
    stage.alloc("a1", "n-1");
    stage.change_alloc("a1", |alloc| alloc.uid = "of-another-incarnation".into());
    assert_eq!(stage.claim("a1", ClaimMode::Write), refused);
    assert_eq!(stage.status(), before);
}

/// V-012
#[test]
fn a_volume_without_room_is_unschedulable() {
    let mut stage = Stage::new(AccessMode::MultiNodeMultiWriter);
    stage.change_status(|status| status.resource_exhausted = Some(now()));
    stage.alloc("a1", "n-1");
    for mode in [ClaimMode::Read, ClaimMode::Write] {
        assert_eq!(stage.claim("a1", mode), unschedulable(mode));
    }
}

#[test]
fn an_unknown_volume_and_a_full_list_are_refused() {
    let mut stage = Stage::new(AccessMode::MultiNodeMultiWriter);
    stage.alloc("a1", "n-1");
    let elsewhere = ClaimRequest { volume: ObjectKey::new("other", "v1"), ..stage.request("a1", ClaimMode::Read) };
    let refused = take(&stage.world.view, &elsewhere, now());
    assert_eq!(refused, Err(ClaimError::NoVolume { volume: ObjectKey::new("other", "v1") }));
    stage.holder("a0", "n-1", ClaimMode::Write);
    let one = stage.status().claims[0].clone();
    stage.change_status(|status| {
        status.claims = (0..MOST_CLAIMS).map(|n| Claim { alloc_id: format!("x{n}"), ..one.clone() }).collect();
    });
    assert_eq!(stage.claim("a1", ClaimMode::Write), max_claims(ClaimMode::Write));
}

/// V-013
#[test]
fn the_last_claim_takes_the_current_modes_with_it() {
    let mut stage = Stage::new(AccessMode::MultiNodeMultiWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    stage.holder("a2", "n-2", ClaimMode::Write);
    stage.end("a1");
    stage.release("a1");
    assert_eq!(modes(&stage), (Some(AccessMode::MultiNodeMultiWriter), Some(AttachmentMode::FileSystem)));
    stage.end("a2");
    stage.release("a2");
    assert_eq!((modes(&stage), stage.status().claims), ((None, None), Vec::new()));
}

/// V-014
#[test]
fn the_claim_of_an_ended_allocation_is_past_and_listed() {
    for end in [ClientStatus::Complete, ClientStatus::Failed, ClientStatus::Lost] {
        let mut stage = Stage::new(AccessMode::SingleNodeWriter);
        stage.holder("a1", "n-1", ClaimMode::Write);
        stage.change_alloc("a1", |alloc| alloc.client = end);
        let seen = read(&stage.world.view, &v1()).expect("a volume");
        assert_eq!(seen.claims.len(), 1);
        let past: Vec<_> = past(&seen).map(|claim| (&*claim.alloc_id, claim.state)).collect();
        assert_eq!(past, [("a1", ClaimState::Unpublishing)], "{end}");
        assert_eq!((&*with_columns(&seen).columns.claims, with_columns(&seen).phase.as_str()), ("0/1/1", "reaping"));
    }
}

/// V-015
#[test]
fn the_claim_of_a_vanished_allocation_keeps_what_is_known_of_it() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    stage.holder("a1", "n-1", ClaimMode::Read);
    let before = stage.held("a1").expect("a claim");
    stage.world.view.remove_alloc(&AllocKey::new("shop", "a1"));
    let seen = read(&stage.world.view, &v1()).expect("a volume");
    assert_eq!(seen.claims, [Claim { state: ClaimState::Unpublishing, ..before.clone() }]);
    assert_eq!((&*before.node_name, before.mode, &*before.external_node_id), ("n-1", ClaimMode::Read, "i-n-1"));
}

/// V-016
#[test]
fn an_allocation_that_is_only_to_stop_holds_its_claim() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    stage.change_alloc("a1", |alloc| alloc.desired = DesiredStatus::Stop);
    let seen = read(&stage.world.view, &v1()).expect("a volume");
    assert_eq!(past(&seen).count(), 0);
    assert_eq!(stage.release("a1").text(), "");
}

#[test]
fn a_claim_without_modes_takes_the_volumes() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    stage.change_status(|status| (status.claims[0].access_mode, status.claims[0].attachment_mode) = (None, None));
    let seen = read(&stage.world.view, &v1()).expect("a volume");
    let claim = &seen.claims[0];
    assert_eq!((claim.access_mode, claim.attachment_mode), (seen.access_mode, seen.attachment_mode));
}

/// V-017
#[test]
fn a_touch_changes_the_time_and_no_claim() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    let later = now() + SignedDuration::from_mins(1);
    let touched = updated(&stage.status(), &[Update::Touch], later);
    assert_eq!(touched, CSIVolumeStatus { modified_at: Some(later), ..stage.status() });
}

/// V-018
#[test]
fn no_update_makes_an_entry() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    let detach = |id: &str, state| Update::Release { alloc_id: id.to_owned(), state, error: String::new() };
    let free = detach("a1", ClaimState::ReadyToFree);
    let orders = [
        vec![Update::Touch, free.clone()],
        vec![free.clone(), Update::Touch],
        vec![free.clone(), Update::Touch, free.clone()],
        vec![Update::Touch, detach("", ClaimState::NodeDetached), free],
    ];
    for order in orders {
        let mut status = stage.status();
        for update in &order {
            status = updated(&status, std::slice::from_ref(update), now());
            assert!(status.claims.iter().all(|claim| claim.alloc_id == "a1"), "{order:?}");
        }
        assert_eq!(status.claims, [], "{order:?}");
    }
}

#[test]
fn a_state_never_moves_back() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    let to = |state| Update::Release { alloc_id: "a1".to_owned(), state, error: String::new() };
    let status = updated(&stage.status(), &[to(ClaimState::NodeDetached), to(ClaimState::Unpublishing)], now());
    assert_eq!(status.claims[0].state, ClaimState::NodeDetached);
}

#[test]
fn a_per_allocation_volume_is_claimed_and_released_under_its_slots_id() {
    let volumes = json!([{ "name": "data", "type": "csi", "source": "data", "perAlloc": true,
        "accessMode": "single-node-writer", "attachmentMode": "file-system" }]);
    let mut spec = spec(2);
    spec["groups"][0]["volumes"] = volumes;
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    let (plain, status) = (stage.spec(), stage.status());
    stage.world = World::new(&spec);
    for name in ["n-1", "n-2"] {
        stage.put_node(plugin_node(name, |_| {}));
    }
    for id in ["data[0]", "data[1]"] {
        stage.put_volume(&ObjectKey::new("shop", id), plain.clone(), status.clone());
    }
    stage.world.allocs([1], |alloc| (alloc.key, alloc.uid) = (AllocKey::new("shop", "a1"), "a1".into()));
    let alloc = Arc::clone(stage.world.view.alloc(&AllocKey::new("shop", "a1")).expect("an allocation"));
    let wanted = wanted(&stage.world.view, &alloc);
    stage.volume = ObjectKey::new("shop", "data[1]");
    assert_eq!(wanted, [stage.request("a1", ClaimMode::Write)]);
    assert_eq!(stage.claim("a1", ClaimMode::Write), Ok(true));
    stage.end("a1");
    assert_eq!(
        stage.release("a1").text(),
        "unpublishing; node n-1 rw; node-detached; controller n-1 vol-1 off i-n-1; ready-to-free"
    );
    stage.volume = ObjectKey::new("shop", "data[0]");
    assert_eq!(stage.status(), status);
}
