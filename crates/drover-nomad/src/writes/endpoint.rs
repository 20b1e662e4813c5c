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
    /// A volume is made known, or changed.
    RegisterVolume(String),
    /// A volume is to be made by its provider.
    CreateVolume(String),
    /// A volume is taken out, and its provider deletes its data.
    DeleteVolume(String),
    /// A snapshot of a volume is taken.
    TakeSnapshot,
    /// A snapshot of a volume is deleted.
    DeleteSnapshot,
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

/// Ends of paths, and what is made of what stands before them.
type Ends = &'static [(&'static str, OfId<WriteEndpoint>)];

/// What PUT writes of a volume, by how the path ends.
const PUT_OF_VOLUME: Ends = &[("/create", WriteEndpoint::CreateVolume)];
/// What DELETE writes of it.
const DELETE_OF_VOLUME: Ends = &[("/delete", WriteEndpoint::DeleteVolume), ("/detach", WriteEndpoint::DetachVolume)];

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
    if path == "volumes/snapshot" {
        let delete = is_delete.then_some(WriteEndpoint::DeleteSnapshot);
        return if is_put { Some(WriteEndpoint::TakeSnapshot) } else { delete };
    }
    if let Some(volume) = path.strip_prefix("volume/csi/") {
        return match (is_put, is_delete) {
            (true, _) => of_volume(volume, WriteEndpoint::RegisterVolume, (PUT_OF_VOLUME, DELETE_OF_VOLUME)),
            (_, true) => of_volume(volume, WriteEndpoint::DeregisterVolume, (DELETE_OF_VOLUME, PUT_OF_VOLUME)),
            (false, false) => None,
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
    let is_of_volume =
        |volume: &str| [PUT_OF_VOLUME, DELETE_OF_VOLUME].iter().any(|ends| by_end(ends, volume).is_some());
    put(path).is_some_and(|endpoint| !matches!(endpoint, WriteEndpoint::Register(_) | WriteEndpoint::Scale(_)))
        || tag(path).is_some()
        || path.strip_prefix("volume/csi/").is_some_and(is_of_volume)
}

/// What is written of a volume, whose id may hold `/`: itself, or by one of the ends of this method. With an end of the
/// other method it is no id.
fn of_volume(path: &str, itself: OfId<WriteEndpoint>, (ends, others): (Ends, Ends)) -> Option<WriteEndpoint> {
    if by_end(others, path).is_some() {
        return None;
    }
    let (id, of) = by_end(ends, path).unwrap_or((path, itself));
    some_id(id).map(of)
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
        let delete = |path: &str| of(&Method::DELETE, path);
        assert_eq!(delete("volume/csi/a/b/detach"), Some(WriteEndpoint::DetachVolume("a/b".to_owned())));
        assert_eq!(delete("volume/csi/a/b/delete"), Some(WriteEndpoint::DeleteVolume("a/b".to_owned())));
        assert_eq!(delete("volume/csi/a/b"), Some(WriteEndpoint::DeregisterVolume("a/b".to_owned())));
        assert_eq!(put("volume/csi/a/b"), Some(WriteEndpoint::RegisterVolume("a/b".to_owned())));
        assert_eq!(put("volume/csi/a/b/create"), Some(WriteEndpoint::CreateVolume("a/b".to_owned())));
        assert_eq!(put("volumes/snapshot"), Some(WriteEndpoint::TakeSnapshot));
        assert_eq!(delete("volumes/snapshot"), Some(WriteEndpoint::DeleteSnapshot));
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
            (Method::DELETE, "volume/csi/v/create"),
            (Method::PUT, "volume/csi/v/delete"),
            (Method::PUT, "volume/csi/v/detach"),
            (Method::PUT, "volume/csi//create"),
            (Method::GET, "volume/csi/v"),
            (Method::GET, "volumes/snapshot"),
            (Method::PUT, "volume/host/v"),
            (Method::PUT, "nodes"),
        ] {
            assert_eq!(of(&method, path), None, "{method} {path}");
        }
        assert!(is_written("job/a/stable") && is_written("job/a/versions/x/tag") && !is_written("job/a/versions"));
        assert!(is_written("job/a/dispatch") && is_written("validate/job") && is_written("volume/csi/v/detach"));
        assert!(is_written("volume/csi/v/create") && is_written("volume/csi/v/delete"));
        assert!(!is_written("volume/csi/v") && !is_written("volumes/snapshot"));
        assert!(!is_written("job/a") && !is_written("jobs") && !is_written("job/a/scale") && !is_written("nodes"));
    }
}
