//! What is written, by method and path.

use http::Method;

use crate::paths::{OfId, by_end, by_ends, some_id};
use crate::{endpoint, unbuilt};

/// What is changed, or asked with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteEndpoint {
    /// A job is registered; the id that the path names, where it names one.
    Register(Option<String>),
    /// A job is stopped, or purged.
    Deregister(String),
    /// A job is checked.
    Validate,
    /// A job file is read.
    Parse,
    /// A job gets the spec of one of its versions.
    Revert(String),
    /// A parameterized job is dispatched.
    Dispatch(String),
    /// One is dispatched, and the body is its payload.
    DispatchPayload(String),
    /// A group of a job is scaled.
    Scale(String),
    /// A version of a job is stable, or not.
    Stable(String),
    /// A version of a job gets a name.
    ApplyTag(VersionTag),
    /// It has none any more.
    UnsetTag(VersionTag),
    /// A periodic job is launched now.
    Force(String),
    /// A job is evaluated.
    Evaluate(String),
    /// An allocation is stopped.
    StopAllocation(String),
    /// Canaries are promoted.
    Promote(String),
    /// A deployment is paused or goes on.
    Pause(String),
    /// A deployment fails.
    Fail(String),
    /// Allocations of a deployment are judged.
    AllocationHealth(String),
    /// A node is drained, or no more.
    Drain(String),
    /// A node takes allocations, or none.
    Eligibility(String),
    /// A node is forgotten.
    Purge(String),
    /// A volume is taken out; its data stays.
    DeregisterVolume(String),
    /// A volume is released from a node.
    DetachVolume(String),
}

/// A name that a version of a job has, or gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionTag {
    /// The id of the job.
    pub job: String,
    /// The name.
    pub name: String,
}

/// What is written of a job, by how the path ends. The longer ends stand first.
const OF_JOB: &[(&str, OfId<WriteEndpoint>)] = &[
    ("/dispatch/payload", WriteEndpoint::DispatchPayload),
    ("/periodic/force", WriteEndpoint::Force),
    ("/dispatch", WriteEndpoint::Dispatch),
    ("/evaluate", WriteEndpoint::Evaluate),
    ("/revert", WriteEndpoint::Revert),
    ("/scale", WriteEndpoint::Scale),
    ("/stable", WriteEndpoint::Stable),
];

/// What is written below other paths: how the path begins and ends.
const OF_OTHERS: &[(&str, &str, OfId<WriteEndpoint>)] = &[
    ("allocation/", "/stop", WriteEndpoint::StopAllocation),
    ("deployment/promote/", "", WriteEndpoint::Promote),
    ("deployment/pause/", "", WriteEndpoint::Pause),
    ("deployment/fail/", "", WriteEndpoint::Fail),
    ("deployment/allocation-health/", "", WriteEndpoint::AllocationHealth),
    ("node/", "/drain", WriteEndpoint::Drain),
    ("node/", "/eligibility", WriteEndpoint::Eligibility),
    ("node/", "/purge", WriteEndpoint::Purge),
];

/// What a method writes at a path; none: it writes nothing there.
pub(crate) fn of(method: &Method, path: &str) -> Option<WriteEndpoint> {
    let (is_put, is_delete) = (*method == Method::PUT || *method == Method::POST, *method == Method::DELETE);
    if let Some(found) = put(path) {
        return is_put.then_some(found);
    }
    if let Some(tag) = tag(path) {
        return if is_put {
            Some(WriteEndpoint::ApplyTag(tag))
        } else {
            is_delete.then_some(WriteEndpoint::UnsetTag(tag))
        };
    }
    if let Some(volume) = path.strip_prefix("volume/csi/").filter(|_| is_delete) {
        return match volume.strip_suffix("/detach") {
            Some(id) => some_id(id).map(WriteEndpoint::DetachVolume),
            None if volume.ends_with("/delete") => None,
            None => some_id(volume).map(WriteEndpoint::DeregisterVolume),
        };
    }
    let is_more = endpoint::is_of_job(path) || unbuilt::is_of_job(path);
    let job = path.strip_prefix("job/").filter(|_| !is_more).and_then(some_id)?;
    match (is_put, is_delete) {
        (true, _) => Some(WriteEndpoint::Register(Some(job))),
        (_, true) => Some(WriteEndpoint::Deregister(job)),
        (false, false) => None,
    }
}

/// Whether a path is one that is written and not read, so that another method is wrong there.
pub(crate) fn is_written(path: &str) -> bool {
    put(path).is_some_and(|endpoint| !matches!(endpoint, WriteEndpoint::Register(_) | WriteEndpoint::Scale(_)))
        || tag(path).is_some()
        || path.strip_prefix("volume/csi/").is_some_and(|volume| volume.ends_with("/detach"))
}

/// What PUT writes at a path that says so by itself.
fn put(path: &str) -> Option<WriteEndpoint> {
    match path {
        "jobs" => return Some(WriteEndpoint::Register(None)),
        "jobs/parse" => return Some(WriteEndpoint::Parse),
        "validate/job" => return Some(WriteEndpoint::Validate),
        _ => {}
    }
    if let Some(rest) = path.strip_prefix("job/") {
        let (id, of) = by_end(OF_JOB, rest)?;
        return some_id(id).map(of);
    }
    by_ends(OF_OTHERS, path)
}

/// The tag that a path names. Ids of jobs and names of tags may hold `/`.
fn tag(path: &str) -> Option<VersionTag> {
    let (job, name) = path.strip_prefix("job/")?.strip_suffix("/tag")?.rsplit_once("/versions/")?;
    Some(VersionTag { job: some_id(job)?, name: some_id(name)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_found_by_how_its_path_begins_and_ends() {
        let put = |path: &str| of(&Method::PUT, path);
        assert_eq!(put("jobs"), Some(WriteEndpoint::Register(None)));
        assert_eq!(put("job/a/b"), Some(WriteEndpoint::Register(Some("a/b".to_owned()))));
        assert_eq!(put("job/a/b/dispatch/payload"), Some(WriteEndpoint::DispatchPayload("a/b".to_owned())));
        assert_eq!(put("job/a/periodic/force"), Some(WriteEndpoint::Force("a".to_owned())));
        assert_eq!(put("node/u/drain"), Some(WriteEndpoint::Drain("u".to_owned())));
        assert_eq!(put("deployment/promote/u"), Some(WriteEndpoint::Promote("u".to_owned())));
        let tag = |job: &str, name: &str| VersionTag { job: job.to_owned(), name: name.to_owned() };
        assert_eq!(put("job/a/b/stable"), Some(WriteEndpoint::Stable("a/b".to_owned())));
        assert_eq!(put("job/a/b/versions/x/tag"), Some(WriteEndpoint::ApplyTag(tag("a/b", "x"))));
        let unset = of(&Method::DELETE, "job/a/versions/x/y/tag");
        assert_eq!(unset, Some(WriteEndpoint::UnsetTag(tag("a", "x/y"))));
        assert_eq!(of(&Method::DELETE, "job/a"), Some(WriteEndpoint::Deregister("a".to_owned())));
        assert_eq!(of(&Method::DELETE, "volume/csi/a/b/detach"), Some(WriteEndpoint::DetachVolume("a/b".to_owned())));
        for (method, path) in [
            (Method::GET, "jobs"),
            (Method::GET, "job/a"),
            (Method::PUT, "job/a/allocations"),
            (Method::PUT, "job/"),
            (Method::DELETE, "job/a/dispatch"),
            (Method::DELETE, "job/a/stable"),
            (Method::GET, "job/a/versions/x/tag"),
            (Method::PUT, "node/a/b/drain"),
            (Method::PUT, "allocation//stop"),
            (Method::DELETE, "volume/csi/v/delete"),
            (Method::PUT, "nodes"),
        ] {
            assert_eq!(of(&method, path), None, "{method} {path}");
        }
        assert!(is_written("job/a/stable") && is_written("job/a/versions/x/tag") && !is_written("job/a/versions"));
        assert!(is_written("job/a/dispatch") && is_written("validate/job") && is_written("volume/csi/v/detach"));
        assert!(!is_written("job/a") && !is_written("jobs") && !is_written("job/a/scale") && !is_written("nodes"));
    }
}
