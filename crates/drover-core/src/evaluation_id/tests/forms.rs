//! Which texts are ids, and which ids are whose.

use super::*;

#[test]
fn a_uuid_has_five_parts_of_hexadecimal_digits() {
    let id = of_point(UID, Point { generation: 1, asked: 0 });
    for (text, is_one) in [
        (id.clone(), true),
        (id.to_uppercase(), true),
        (id[..35].to_owned(), false),
        (format!("{id}0"), false),
        (id.replacen('-', "0", 1), false),
        (format!("-{}", &id[1..]), false),
        (format!("g{}", &id[1..]), false),
        // As many bytes, and fewer letters.
        (format!("é{}", &id[2..]), false),
        (String::new(), false),
    ] {
        assert_eq!(is_uuid(&text), is_one, "{text}");
        assert_eq!(tag_of(&text).is_some(), is_one, "{text}");
    }
}

#[test]
fn ids_do_not_meet_where_their_parts_run_into_each_other() {
    assert_ne!(of_leader(UID, "a", 11), of_leader(UID, "a1", 1));
    assert_ne!(of_stop(UID, "u", 11), of_stop(UID, "u1", 1));
    assert_ne!(of_stop(UID, "u", 1), of_request(UID, "u", 1));
    assert_ne!(of_wait(UID, "scaling"), of_policy(UID, "wait"));
    let point = |generation, asked| of_point(UID, Point { generation, asked });
    assert_ne!(point(1, 11), point(11, 1));
    assert_ne!(point(1, 0), point(10, 0));
}

#[test]
fn an_id_is_the_same_in_every_version_of_drover() {
    // Objects and Nomad's clients keep them: a change of these digits loses what waits for an evaluation.
    let id = of_point(UID, Point { generation: 1, asked: 0 });
    let by_hand = |parts: &[&str]| {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update([part.as_bytes(), &[0]].concat());
        }
        hex(&hasher.finalize())
    };
    let (own, tag) = (by_hand(&[UID, "job", "1", "0"]), by_hand(&["of", UID]));
    let expected = format!("{}-{}-{}-{}-{}", &own[..8], &own[8..12], &own[12..16], &own[16..20], &tag[..12]);
    assert_eq!(id, expected);
}

#[test]
fn a_point_covers_what_is_older_in_both_its_numbers() {
    for generation in 0..3 {
        for asked in 0..3 {
            for (other_generation, other_asked) in [(0, 0), (1, 1), (2, 2), (0, 2), (2, 0)] {
                let (one, other) =
                    (Point { generation, asked }, Point { generation: other_generation, asked: other_asked });
                let wanted = !(generation < other_generation || asked < other_asked);
                assert_eq!(one.covers(other), wanted, "{one:?} {other:?}");
            }
        }
    }
}
