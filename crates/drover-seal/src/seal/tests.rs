//! What is sealed opens for its claim and its key, and for nothing else.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const CLAIM: ClaimId<'static> = ClaimId { namespace: "shop", volume: "v1", alloc_id: "a1" };

fn context(value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("device".to_owned(), value.to_owned())])
}

#[test]
fn a_context_opens_with_the_key_that_was_written_to_a_file() {
    let key = NodeKey::generate().expect("a key");
    let sealed = seal(&context("canary"), &key.public(), CLAIM).expect("sealed");
    assert_eq!(sealed.keys().collect::<Vec<_>>(), [SEALED]);
    assert!(!format!("{sealed:?}").contains("canary"));
    let kept = NodeKey::from_text(&format!("{}\n", key.to_text())).expect("a key");
    assert_eq!(kept.open(&sealed, CLAIM), Ok(context("canary")));
    assert!(!format!("{kept:?}").contains(&STANDARD.encode(kept.private.secret_bytes())));
}

#[test]
fn the_same_context_never_looks_the_same() {
    let key = NodeKey::generate().expect("a key");
    let once = || seal(&context("canary"), &key.public(), CLAIM).expect("sealed");
    assert_ne!(once(), once());
}

#[test]
fn another_key_and_another_claim_do_not_open_it() {
    let (key, other) = (NodeKey::generate().expect("a key"), NodeKey::generate().expect("a key"));
    let sealed = seal(&context("canary"), &key.public(), CLAIM).expect("sealed");
    assert_eq!(other.open(&sealed, CLAIM), Err(SealError::Foreign));
    for claim in [
        ClaimId { namespace: "other", ..CLAIM },
        ClaimId { volume: "v2", ..CLAIM },
        ClaimId { alloc_id: "a2", ..CLAIM },
    ] {
        assert_eq!(key.open(&sealed, claim), Err(SealError::Foreign), "{claim:?}");
    }
}

#[test]
fn what_is_not_sealed_stays_as_it_is_and_nothing_stays_nothing() {
    let key = NodeKey::generate().expect("a key");
    assert_eq!(key.open(&context("plain"), CLAIM), Ok(context("plain")));
    assert_eq!(seal(&BTreeMap::new(), "no key", CLAIM), Ok(BTreeMap::new()));
    assert_eq!(seal(&context("plain"), "", CLAIM), Ok(context("plain")));
    assert_eq!(seal(&context("plain"), "no key", CLAIM), Err(SealError::Key));
    assert_eq!(NodeKey::from_text("no key").map(|key| key.public()), Err(SealError::Key));
}

proptest! {
    #[test]
    fn every_context_comes_back(context in prop::collection::btree_map(".{0,40}", ".{0,200}", 1..32)) {
        let key = NodeKey::generate().expect("a key");
        let sealed = seal(&context, &key.public(), CLAIM).expect("sealed");
        prop_assert_eq!(key.open(&sealed, CLAIM), Ok(context));
    }

    #[test]
    fn what_was_changed_does_not_open(at in 0..1000_usize, by in 1..=255_u8) {
        let key = NodeKey::generate().expect("a key");
        let sealed = seal(&context("canary"), &key.public(), CLAIM).expect("sealed");
        let mut bytes = STANDARD.decode(&sealed[SEALED]).expect("base64");
        let at = at % bytes.len();
        bytes[at] ^= by;
        let changed = BTreeMap::from([(SEALED.to_owned(), STANDARD.encode(bytes))]);
        // X25519 ignores the highest bit of a key (RFC 7748, 5); the encapsulated secret is bound by the key schedule.
        prop_assert!(key.open(&changed, CLAIM).is_err());
    }
}
