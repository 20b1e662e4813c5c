//! Claims that wait for others (section 6.1).

use std::time::Duration;

use super::*;
use crate::volume::wait::{Waits, pause};

const fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// V-002, A-158
#[test]
fn a_claim_that_is_not_free_is_tried_again_ever_later_until_it_is() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    stage.alloc("a2", "n-1");
    stage.change_alloc("a2", |alloc| alloc.client = ClientStatus::Pending);
    let (volume, mut waits, mut tries) = (stage.volume.clone(), Waits::default(), Vec::new());
    let mut now = at(0);
    while now < at(200) {
        let refused = stage.claim("a2", ClaimMode::Write).expect_err("a1 holds it");
        assert_eq!(refused, ClaimError::MaxClaims { volume: volume.clone(), mode: ClaimMode::Write });
        assert!(refused.is_retryable());
        tries.push(now.as_secs());
        waits.refused(&volume, now);
        let next = waits.wake_at().expect("it is tried again");
        assert_eq!(waits.due(next.saturating_sub(Duration::from_millis(1))), None);
        assert_eq!(waits.due(next).as_ref(), Some(&volume));
        now = next;
    }
    assert_eq!(tries, [0, 2, 6, 14, 30, 62, 122, 182]);
    let pending = stage.world.view.alloc(&AllocKey::new("shop", "a2")).expect("an allocation");
    assert_eq!(pending.client, ClientStatus::Pending, "it waits");
    stage.end("a1");
    stage.release("a1");
    assert_eq!(stage.claim("a2", ClaimMode::Write), Ok(true));
    waits.settled(&volume);
    assert_eq!(
        (waits.wake_at(), waits.due(at(1000))),
        (None, None),
        "nothing is left of a volume for which nobody waits"
    );
}

#[test]
fn a_look_before_its_time_moves_the_next_try_nowhere() {
    let (volume, mut waits) = (v1(), Waits::default());
    waits.refused(&volume, at(0));
    waits.refused(&volume, at(1));
    assert_eq!(waits.wake_at(), Some(at(2)));
    assert_eq!(waits.due(at(2)), Some(volume.clone()));
    waits.refused(&volume, at(2));
    assert_eq!(waits.wake_at(), Some(at(6)));
    waits.settled(&volume);
    waits.refused(&volume, at(10));
    assert_eq!(waits.wake_at(), Some(at(12)), "who comes later begins anew");
}

#[test]
fn pauses_double_up_to_a_minute() {
    let pauses: Vec<u64> = (0..8).map(|n| pause(n).as_secs()).collect();
    assert_eq!(pauses, [2, 2, 4, 8, 16, 32, 60, 60]);
    assert_eq!(pause(u32::MAX), at(60));
}
