//! Which keys there are: plain functions over what is stored and the time.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData as _};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct IdentityKey {
    /// Its name, which tokens carry: the thumbprint of RFC 7638.
    pub(super) kid: String,
    /// The public part as a JWK has it.
    pub(super) x: String,
    /// The private part, PKCS 8 as base64; none: it signs no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    private: Option<String>,
    /// From when it signs.
    pub(super) from: Timestamp,
}

/// A key is never shown.
impl std::fmt::Debug for IdentityKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdentityKey").field("kid", &self.kid).field("from", &self.from).finish_non_exhaustive()
    }
}

impl IdentityKey {
    /// A new one.
    fn new(from: Timestamp) -> Result<Self, rcgen::Error> {
        let pair = KeyPair::generate_for(&PKCS_ED25519)?;
        let x = URL_SAFE_NO_PAD.encode(pair.der_bytes());
        let kid = URL_SAFE_NO_PAD.encode(Sha256::digest(format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#)));
        Ok(Self { kid, x, private: Some(STANDARD.encode(pair.serialize_der())), from })
    }

    /// The private part, PKCS 8.
    pub(super) fn private(&self) -> Option<Vec<u8>> {
        STANDARD.decode(self.private.as_deref()?).ok()
    }
}

/// All keys, in the order in which they sign.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IdentityKeys(pub(super) Vec<IdentityKey>);

impl IdentityKeys {
    /// The one that signs now.
    pub(super) fn active(&self, now: Timestamp) -> Option<&IdentityKey> {
        self.0.iter().rev().find(|key| key.from <= now && key.private.is_some())
    }

    /// The one of this name.
    pub(super) fn named(&self, kid: &str) -> Option<&IdentityKey> {
        self.0.iter().find(|key| key.kid == kid)
    }
}

/// When keys are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rotation {
    /// How long one signs.
    pub(super) every: Duration,
    /// How long before that it is published: who checks tokens looks at the keys only now and then.
    pub(super) announced: Duration,
}

impl Rotation {
    /// New keys so often, each published for an hour before it signs, or for a tenth of its life where that is shorter.
    pub(super) fn new(every: Duration) -> Self {
        Self { every, announced: Duration::from_hours(1).min(every / 10) }
    }
}

/// What is known of the allocations that live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Living {
    /// It was not asked.
    Unknown,
    /// The oldest was made then; none: there is none.
    Oldest(Option<Timestamp>),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeyStep {
    /// Store these, and look again.
    Store(IdentityKeys),
    /// All is well; look again at this time at the latest.
    Wait(Timestamp),
}

/// Clocks of replicas and of the API server differ; what is younger by no more is taken for as old.
const SLACK: Duration = Duration::from_mins(5);

/// Decides what is needed now.
pub(super) fn step(
    keys: &IdentityKeys,
    rotation: Rotation,
    living: Living,
    now: Timestamp,
) -> Result<KeyStep, rcgen::Error> {
    let Some(active) = keys.active(now) else {
        // Nothing that could sign is there: what is new signs at once.
        let mut next = keys.clone();
        next.0.retain(|key| key.from <= now);
        next.0.push(IdentityKey::new(now)?);
        return Ok(KeyStep::Store(next));
    };
    let is_newest = keys.0.last().is_some_and(|newest| newest.kid == active.kid);
    let renew_at = active.from.saturating_add(rotation.every.saturating_sub(rotation.announced)).unwrap_or(now);
    if is_newest && now >= renew_at {
        let mut next = keys.clone();
        next.0.push(IdentityKey::new(now.saturating_add(rotation.announced).unwrap_or(now))?);
        return Ok(KeyStep::Store(next));
    }
    let mut next = keys.clone();
    let gone = superseded_for_all(keys, active, living);
    next.0.retain(|key| !gone.contains(key.kid.as_str()));
    for key in next.0.iter_mut().filter(|key| key.from < active.from) {
        key.private = None;
    }
    if next != *keys {
        return Ok(KeyStep::Store(next));
    }
    let signs_next = keys.0.iter().map(|key| key.from).find(|from| *from > now);
    Ok(KeyStep::Wait(signs_next.unwrap_or(renew_at)))
}

/// Whether a key has been superseded, so that it has to be asked which allocations live.
pub(super) fn has_superseded(keys: &IdentityKeys, now: Timestamp) -> bool {
    keys.active(now).is_some_and(|active| keys.0.iter().any(|key| key.from < active.from))
}

/// The keys whose tokens no allocation holds any more that lives: all of them were made when the next key signed.
fn superseded_for_all<'a>(keys: &'a IdentityKeys, active: &IdentityKey, living: Living) -> BTreeSet<&'a str> {
    let Living::Oldest(oldest) = living else { return BTreeSet::new() };
    let pairs = keys.0.iter().zip(keys.0.iter().skip(1));
    let is_gone = |next: &IdentityKey| {
        next.from <= active.from
            && oldest.is_none_or(|oldest| next.from.saturating_add(SLACK).is_ok_and(|until| oldest > until))
    };
    pairs.filter(|(_, next)| is_gone(next)).map(|(key, _)| key.kid.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn at(days: u64) -> Timestamp {
        Timestamp::UNIX_EPOCH.saturating_add(DAY * u32::try_from(days).expect("days")).expect("a time")
    }

    fn stored(keys: &IdentityKeys, living: Living, now: Timestamp) -> IdentityKeys {
        match step(keys, Rotation::new(DAY * 30), living, now).expect("a step") {
            KeyStep::Store(next) => next,
            KeyStep::Wait(until) => panic!("nothing to do until {until}: {keys:?}"),
        }
    }

    fn waits(keys: &IdentityKeys, living: Living, now: Timestamp) -> Timestamp {
        match step(keys, Rotation::new(DAY * 30), living, now).expect("a step") {
            KeyStep::Wait(until) => until,
            KeyStep::Store(next) => panic!("{next:?}"),
        }
    }

    #[test]
    fn b_062_a_key_is_published_before_it_signs_and_the_old_ones_private_part_goes_then() {
        let hour = Duration::from_hours(1);
        let first = stored(&IdentityKeys::default(), Living::Unknown, at(0));
        assert_eq!(first.active(at(0)).map(|key| &key.kid), Some(&first.0[0].kid));
        let renew_at = at(30).saturating_sub(hour).expect("a time");
        assert_eq!(waits(&first, Living::Unknown, at(1)), renew_at);
        let both = stored(&first, Living::Unknown, renew_at);
        assert_eq!((both.0.len(), both.0[1].from), (2, at(30)));
        // Known, and not used yet.
        assert_eq!(both.active(renew_at), both.0.first());
        assert_eq!(waits(&both, Living::Unknown, renew_at), at(30));
        let next = stored(&both, Living::Unknown, at(30));
        assert_eq!(next.active(at(30)).map(|key| &key.kid), Some(&both.0[1].kid));
        assert!(next.0[0].private().is_none() && next.0[1].private().is_some());
        assert_eq!(next.0[0].x, both.0[0].x);
    }

    #[test]
    fn b_062_a_public_key_stays_as_long_as_an_allocation_lives_that_may_hold_a_token_of_it() {
        let mut keys = stored(&IdentityKeys::default(), Living::Unknown, at(0));
        for day in [30, 60] {
            keys = stored(&keys, Living::Unknown, at(day).saturating_sub(Duration::from_hours(1)).expect("a time"));
            keys = stored(&keys, Living::Unknown, at(day));
        }
        assert!(has_superseded(&keys, at(60)) && keys.0.len() == 3);
        let left = |oldest: Option<u64>| {
            let living = Living::Oldest(oldest.map(at));
            match step(&keys, Rotation::new(DAY * 30), living, at(61)).expect("a step") {
                KeyStep::Store(next) => next.0.len(),
                KeyStep::Wait(_) => keys.0.len(),
            }
        };
        assert_eq!((left(Some(1)), left(Some(30)), left(Some(31)), left(Some(61)), left(None)), (3, 3, 2, 1, 1));
        assert_eq!(
            waits(&keys, Living::Unknown, at(61)),
            at(90).saturating_sub(Duration::from_hours(1)).expect("a time")
        );
    }

    #[test]
    fn keys_that_cannot_sign_are_followed_by_one_that_does_at_once() {
        let mut keys = stored(&IdentityKeys::default(), Living::Unknown, at(0));
        keys.0[0].private = None;
        let next = stored(&keys, Living::Unknown, at(1));
        assert_eq!((next.0.len(), next.active(at(1)).map(|key| key.from)), (2, Some(at(1))));
        assert!(!format!("{next:?}").contains(next.0[1].private.as_deref().expect("a private part")));
    }
}
