//! Ids of evaluations: derived from what asks for them, so that whatever writes a job knows the id of the evaluation
//! that will follow before the leader has made it, and each replica of the gateway knows the same one
//! (`spec/gateway.md` 1, decision 4).
//!
//! An id is a UUID: twenty hexadecimal digits of a digest of what asks, behind which twelve of the job's uid tell to
//! which job it belongs. Must never know whether the evaluation has been made.

use std::collections::BTreeMap;

use drover_api::names::hex;
use drover_api::{Job, annotation};
use sha2::{Digest as _, Sha256};

/// How many digits say what asked for the evaluation.
const OWN_DIGITS: usize = 20;
/// How many say to which job it belongs.
const JOB_DIGITS: usize = 12;

/// A state of a job that asks for an evaluation: later states have no lower number in either field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// metadata.generation.
    pub generation: i64,
    /// How many evaluations were asked for without a change of the spec ([`annotation::EVALUATE`]).
    pub asked: i64,
}

impl Point {
    /// The state of a job.
    pub fn of(job: &Job) -> Self {
        Self::new(job.metadata.generation, job.metadata.annotations.as_ref())
    }

    /// The state that a job's metadata tell.
    pub fn new(generation: Option<i64>, annotations: Option<&BTreeMap<String, String>>) -> Self {
        let text = annotations.and_then(|all| all.get(annotation::EVALUATE));
        let asked = text.and_then(|text| text.parse().ok()).filter(|asked| *asked >= 0).unwrap_or(0);
        Self { generation: generation.unwrap_or(0), asked }
    }

    /// Whether an evaluation of this state has seen all that one of `other` would have.
    pub const fn covers(self, other: Self) -> bool {
        self.generation >= other.generation && self.asked >= other.asked
    }
}

/// The first evaluation of a state of a job.
pub fn of_point(job_uid: &str, point: Point) -> String {
    derived(job_uid, &["job", &point.generation.to_string(), &point.asked.to_string()])
}

/// Another one, which a leader makes for reasons of its own; `number` counts its evaluations.
pub fn of_leader(job_uid: &str, leader: &str, number: u64) -> String {
    derived(job_uid, &["leader", leader, &number.to_string()])
}

/// The one that follows the stop of an allocation; `generation` is the allocation's once the stop is written.
pub fn of_stop(job_uid: &str, allocation_uid: &str, generation: i64) -> String {
    derived(job_uid, &["stop", allocation_uid, &generation.to_string()])
}

/// The one that follows a request to a deployment; `generation` is the deployment's once the request is written.
pub fn of_request(job_uid: &str, deployment_uid: &str, generation: i64) -> String {
    derived(job_uid, &["deployment", deployment_uid, &generation.to_string()])
}

/// The rest of an evaluation, which waits for room; `own` is the id of that evaluation.
pub fn of_wait(job_uid: &str, own: &str) -> String {
    derived(job_uid, &["wait", own])
}

/// The id of a group's scaling policy, which ends as those of its job's evaluations do.
pub fn of_policy(job_uid: &str, group: &str) -> String {
    derived(job_uid, &["scaling", group])
}

/// What ends each id of a job's evaluations.
pub fn tag(job_uid: &str) -> String {
    digest(&["of", job_uid]).chars().take(JOB_DIGITS).collect()
}

/// The tag that an id ends with; none where it is no UUID.
pub fn tag_of(id: &str) -> Option<&str> {
    is_uuid(id).then(|| id.rsplit('-').next()).flatten()
}

/// Whether a text is a UUID.
pub fn is_uuid(text: &str) -> bool {
    let fits = |(at, c): (usize, char)| if matches!(at, 8 | 13 | 18 | 23) { c == '-' } else { c.is_ascii_hexdigit() };
    text.len() == 36 && text.chars().enumerate().all(fits)
}

fn derived(job_uid: &str, parts: &[&str]) -> String {
    let own = digest(&[&[job_uid], parts].concat());
    let part = |from: usize, to: usize| own.get(from..to).unwrap_or_default();
    let own = [part(0, 8), part(8, 12), part(12, 16), part(16, OWN_DIGITS)].join("-");
    [own, tag(job_uid)].join("-")
}

/// A digest in hexadecimal; no part holds the separator.
fn digest(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.as_bytes());
        hasher.update([0]);
    }
    hex(&hasher.finalize())
}

#[cfg(test)]
mod tests {
    mod forms;

    use std::collections::BTreeSet;

    use super::*;

    const UID: &str = "6f1d2c0a-0000-4000-8000-000000000001";

    #[test]
    fn ids_are_uuids_that_end_with_their_jobs_tag_and_no_two_are_alike() {
        let point = |generation, asked| of_point(UID, Point { generation, asked });
        let all = [
            point(1, 0),
            point(2, 0),
            point(1, 1),
            of_leader(UID, "a", 1),
            of_leader(UID, "b", 1),
            of_stop(UID, "u", 1),
            of_request(UID, "u", 1),
            of_wait(UID, "u"),
            of_policy(UID, "u"),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        for id in &all {
            assert!(is_uuid(id), "{id}");
            assert_eq!(tag_of(id), Some(tag(UID).as_str()));
        }
        assert_eq!(point(1, 0), point(1, 0));
        assert_ne!(tag_of(&of_point("another", Point::default())), tag_of(&all[0]));
        assert_eq!((tag_of("controller-7"), is_uuid(&all[0].replace('-', "x"))), (None, false));
    }

    #[test]
    fn a_point_is_read_from_the_job_and_covers_what_was_before() {
        let asked = |text: &str| Some(BTreeMap::from([(annotation::EVALUATE.to_owned(), text.to_owned())]));
        for (text, wanted) in [("4", 4), ("-1", 0), ("many", 0), ("", 0)] {
            let point = Point::new(Some(3), asked(text).as_ref());
            assert_eq!(point, Point { generation: 3, asked: wanted }, "{text:?}");
        }
        let (old, new) = (Point { generation: 3, asked: 1 }, Point { generation: 4, asked: 1 });
        assert!(new.covers(old) && new.covers(new) && !old.covers(new));
        assert!(!new.covers(Point { generation: 3, asked: 2 }));
    }
}
