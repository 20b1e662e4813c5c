//! From where an allocation gets the files of a sticky disk (`ephemeralDisk.migrate`) when the one that it replaces was
//! on another node.
//!
//! The agents' tokens say which node they speak for, and the allocations are the controller's to make. Both together
//! say what a node may have, so that no secret goes with the allocation.

use drover_api::allocation::ClientStatus;
use drover_api::{Allocation, JobVersion};

use crate::task::standing::{self, OwnAllocation, StandingError};

/// Where the files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskSource {
    /// The node.
    pub node: String,
    /// The uid of the allocation there.
    pub uid: String,
}

/// Why there are no files for an allocation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiskError {
    /// The node has no say about the allocation.
    #[error(transparent)]
    Standing(#[from] StandingError),
    /// Its group does not ask for them.
    #[error("group {0} does not migrate its disk; set ephemeralDisk.migrate")]
    NotWanted(String),
    /// It replaces none.
    #[error("the allocation replaces no other one")]
    NoPrevious,
    /// The one that it replaces was deleted, or is another group's.
    #[error("allocation {0}, which this one replaces, is not there any more")]
    Gone(String),
    /// It writes still.
    #[error("allocation {0}, which this one replaces, has not ended")]
    NotEnded(String),
    /// Its node was lost, and with it the files.
    #[error("allocation {0}, which this one replaces, was lost with its node {1}")]
    Lost(String, String),
    /// It ran on the node that asks, which has its files or has them no more.
    #[error("allocation {0}, which this one replaces, was on the same node; its files are gone")]
    Here(String),
}

/// From where an allocation gets the files of the one that it replaces: it must run on the node that asks, live, its
/// group must ask for that, and the replaced one must be of the same group of the same job and have ended elsewhere.
/// `uid` is the allocation's as the node knows it; `previous` is the allocation of the name in
/// `spec.previousAllocation`.
///
/// # Errors
/// Why there are none.
pub fn source(
    allocation: Option<&Allocation>,
    version: Option<&JobVersion>,
    previous: Option<&Allocation>,
    node: (&str, &str),
) -> Result<DiskSource, DiskError> {
    let OwnAllocation { allocation, group } = standing::of_node(allocation, version, node)?;
    let spec = &allocation.spec;
    if !group.is_some_and(|it| it.ephemeral_disk.migrate) {
        return Err(DiskError::NotWanted(spec.group.clone()));
    }
    if spec.previous_allocation.is_empty() {
        return Err(DiskError::NoPrevious);
    }
    let name = || spec.previous_allocation.clone();
    let is_meant = |it: &&Allocation| {
        it.metadata.name.as_ref() == Some(&spec.previous_allocation)
            && it.metadata.namespace == allocation.metadata.namespace
            && (&it.spec.job_uid, &it.spec.group) == (&spec.job_uid, &spec.group)
    };
    let found = previous.filter(is_meant).and_then(|it| Some((it, it.metadata.uid.clone()?)));
    let (previous, uid) = found.ok_or_else(|| DiskError::Gone(name()))?;
    let node = previous.spec.node_name.clone();
    match previous.status.as_ref().map(|status| status.client_status) {
        Some(ClientStatus::Complete | ClientStatus::Failed) if node == spec.node_name => Err(DiskError::Here(name())),
        Some(ClientStatus::Complete | ClientStatus::Failed) => Ok(DiskSource { node, uid }),
        Some(ClientStatus::Lost | ClientStatus::Unknown) => Err(DiskError::Lost(name(), node)),
        Some(ClientStatus::Pending | ClientStatus::Running) | None => Err(DiskError::NotEnded(name())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn allocation(name: &str, node: &str, status: &str, previous: &str) -> Allocation {
        serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "shop", "uid": format!("uid-{name}") },
            "spec": { "jobName": "web", "jobUID": "j", "jobVersion": 3, "group": "g", "index": 0, "nodeName": node,
                      "previousAllocation": previous },
            "status": { "clientStatus": status },
        }))
        .expect("an allocation")
    }

    fn version(migrate: bool) -> JobVersion {
        let group = json!({ "name": "g", "ephemeralDisk": { "migrate": migrate }, "tasks": [] });
        serde_json::from_value(json!({
            "metadata": { "name": "web-3", "namespace": "shop" },
            "spec": { "jobName": "web", "jobUID": "j", "version": 3, "groupNames": "g",
                      "job": { "groups": [group] }, "submittedAt": "2026-01-01T00:00:00Z" },
        }))
        .expect("a version")
    }

    #[test]
    fn only_the_node_of_the_replacement_gets_the_files_and_only_when_they_rest() {
        let (new, version) = (allocation("b", "n-2", "pending", "a"), version(true));
        let old = allocation("a", "n-1", "complete", "");
        let of = |new: &Allocation, old: &Allocation| source(Some(new), Some(&version), Some(old), ("n-2", "uid-b"));
        let there = DiskSource { node: "n-1".to_owned(), uid: "uid-a".to_owned() };
        assert_eq!(of(&new, &old), Ok(there.clone()));
        assert_eq!(of(&new, &allocation("a", "n-1", "failed", "")), Ok(there));

        let a = || "a".to_owned();
        assert_eq!(of(&new, &allocation("a", "n-1", "running", "")), Err(DiskError::NotEnded(a())));
        assert_eq!(of(&new, &allocation("a", "n-1", "lost", "")), Err(DiskError::Lost(a(), "n-1".to_owned())));
        assert_eq!(of(&new, &allocation("a", "n-2", "complete", "")), Err(DiskError::Here(a())));
        assert_eq!(of(&allocation("b", "n-2", "pending", ""), &old), Err(DiskError::NoPrevious));
        // Another one than it replaces, of another job, group or namespace.
        assert_eq!(of(&new, &allocation("c", "n-1", "complete", "")), Err(DiskError::Gone(a())));
        let mut others = [old.clone(), old.clone(), old.clone()];
        others[0].spec.job_uid = "k".to_owned();
        others[1].spec.group = "h".to_owned();
        others[2].metadata.namespace = Some("bank".to_owned());
        for other in &others {
            assert_eq!(of(&new, other), Err(DiskError::Gone(a())));
        }
        // Another node, another allocation of the name, one that has ended.
        let by = |node, uid| source(Some(&new), Some(&version), Some(&old), (node, uid));
        assert_eq!(by("n-3", "uid-b"), Err(StandingError::OtherNode.into()));
        assert_eq!(by("n-2", "uid-c"), Err(StandingError::NoAllocation.into()));
        let over = allocation("b", "n-2", "complete", "a");
        assert_eq!(of(&over, &old), Err(StandingError::Ended.into()));
        // A group that does not ask for it.
        let refused = source(Some(&new), Some(&self::version(false)), Some(&old), ("n-2", "uid-b"));
        assert_eq!(refused, Err(DiskError::NotWanted("g".to_owned())));
    }

    #[test]
    fn what_is_known_of_the_replaced_one_decides_whether_its_files_may_be_had() {
        let (new, version) = (allocation("b", "n-2", "pending", "a"), version(true));
        let of = |old: Option<&Allocation>| source(Some(&new), Some(&version), old, ("n-2", "uid-b"));
        let (name, node) = (|| "a".to_owned(), |node: &str| node.to_owned());
        let found = |at: &str| Ok(DiskSource { node: node(at), uid: "uid-a".to_owned() });
        for (status, at, wanted) in [
            ("pending", "n-1", Err(DiskError::NotEnded(name()))),
            ("pending", "n-2", Err(DiskError::NotEnded(name()))),
            ("running", "n-2", Err(DiskError::NotEnded(name()))),
            ("complete", "n-1", found("n-1")),
            ("failed", "n-3", found("n-3")),
            ("failed", "n-2", Err(DiskError::Here(name()))),
            ("lost", "n-2", Err(DiskError::Lost(name(), node("n-2")))),
            ("unknown", "n-1", Err(DiskError::Lost(name(), node("n-1")))),
            ("unknown", "n-2", Err(DiskError::Lost(name(), node("n-2")))),
        ] {
            assert_eq!(of(Some(&allocation("a", at, status, ""))), wanted, "{status} on {at}");
        }
        assert_eq!(of(None), Err(DiskError::Gone(name())), "it was deleted");
        let mut silent = allocation("a", "n-1", "complete", "");
        silent.status = None;
        assert_eq!(of(Some(&silent)), Err(DiskError::NotEnded(name())), "its agent has told nothing");
        let mut unborn = allocation("a", "n-1", "complete", "");
        unborn.metadata.uid = None;
        assert_eq!(of(Some(&unborn)), Err(DiskError::Gone(name())), "without a uid there is nothing to ask for");
    }

    #[test]
    fn the_version_of_the_allocation_says_whether_its_group_asks_for_files() {
        let (new, old) = (allocation("b", "n-2", "running", "a"), allocation("a", "n-1", "complete", ""));
        let by = |version: Option<&JobVersion>| source(Some(&new), version, Some(&old), ("n-2", "uid-b"));
        assert_eq!(by(None), Err(StandingError::NoVersion.into()));
        let mut others = [version(true), version(true)];
        others[0].spec.version = 4;
        others[1].spec.job_uid = "k".to_owned();
        for other in &others {
            assert_eq!(by(Some(other)), Err(StandingError::NoVersion.into()));
        }
        let mut elsewhere = version(true);
        elsewhere.spec.job.groups[0].name = "h".to_owned();
        assert_eq!(by(Some(&elsewhere)), Err(DiskError::NotWanted("g".to_owned())), "another group asks, not its own");
        assert_eq!(
            source(None, Some(&version(true)), Some(&old), ("n-2", "uid-b")),
            Err(StandingError::NoAllocation.into())
        );
    }

    #[test]
    fn people_are_told_what_became_of_the_files() {
        let name = || "a".to_owned();
        for (error, wanted) in [
            (DiskError::NotWanted("g".to_owned()), "group g does not migrate its disk; set ephemeralDisk.migrate"),
            (DiskError::Gone(name()), "allocation a, which this one replaces, is not there any more"),
            (
                DiskError::Lost(name(), "n-1".to_owned()),
                "allocation a, which this one replaces, was lost with its node n-1",
            ),
            (StandingError::Ended.into(), "the allocation has ended"),
        ] {
            assert_eq!(error.to_string(), wanted);
        }
    }
}
