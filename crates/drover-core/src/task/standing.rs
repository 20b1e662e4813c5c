//! Which say a node has about an allocation, whatever it asks for: it must run there, live, in the version of the job
//! that it was placed for.

use drover_api::group::Group;
use drover_api::{Allocation, AllocationSpec, JobVersion};

/// Why a node has no say about an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StandingError {
    /// There is no such allocation, or it is another one of its name.
    #[error("there is no such allocation: it may have been deleted")]
    NoAllocation,
    /// It runs elsewhere.
    #[error("the allocation is on another node")]
    OtherNode,
    /// It has ended.
    #[error("the allocation has ended")]
    Ended,
    /// Its version of the job is not there.
    #[error("the allocation's version of its job is not there")]
    NoVersion,
}

/// An allocation of the node that asks.
#[derive(Clone, Copy, Debug)]
pub struct OwnAllocation<'a> {
    /// The allocation.
    pub allocation: &'a Allocation,
    /// Its group in its version of the job; none: that has no such group.
    pub group: Option<&'a Group>,
}

/// What a node may ask about. `uid` is the allocation's as the node knows it.
///
/// # Errors
/// Why it has no say.
pub fn of_node<'a>(
    allocation: Option<&'a Allocation>,
    version: Option<&'a JobVersion>,
    (node, uid): (&str, &str),
) -> Result<OwnAllocation<'a>, StandingError> {
    let meant = allocation.filter(|it| it.metadata.uid.as_deref() == Some(uid));
    let allocation = meant.ok_or(StandingError::NoAllocation)?;
    if allocation.spec.node_name != node {
        return Err(StandingError::OtherNode);
    }
    if allocation.has_ended() {
        return Err(StandingError::Ended);
    }
    let AllocationSpec { job_uid, job_version, group, .. } = &allocation.spec;
    let version = version.filter(|it| it.spec.job_uid == *job_uid && it.spec.version == *job_version);
    let job = &version.ok_or(StandingError::NoVersion)?.spec.job;
    Ok(OwnAllocation { allocation, group: job.groups.iter().find(|it| it.name == *group) })
}
