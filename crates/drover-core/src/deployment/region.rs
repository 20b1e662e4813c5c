//! Deployments of a job that runs in several regions (`spec/deployments.md` 9): which peers are told what.
//!
//! A region is a drover cluster of its own behind [`Peers`]. Today there is one region, so that the controller has no peers; the
//! decisions are here so that it only needs to be given some.

use drover_api::deployment::{DeploymentDescription, DeploymentPhase};

/// What happens to the other regions when one fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// This region fails, and those after it that have not begun.
    FailLater,
    /// All regions fail.
    FailAll,
    /// Only this one fails.
    FailLocal,
}

/// A region, by its place in the job's list.
pub type Region = usize;

/// What a peer is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerCall {
    /// Begin.
    Run(Region),
    /// Go on: all regions are done.
    Unblock(Region),
    /// Fail, because a peer did.
    Fail(Region),
}

/// The other regions of a job. An error of a peer never stops what happens here; the call is made again.
pub trait Peers {
    /// Where a region's deployment stands.
    fn phase(&self, region: Region) -> Option<DeploymentPhase>;
    /// Tells a region something.
    ///
    /// # Errors
    /// When it cannot be reached; the text says why.
    fn tell(&mut self, call: PeerCall) -> Result<(), String>;
}

/// Where a deployment of a job in several regions begins: it waits for its turn, which is not a person's pause, so that no
/// activity of a peer resumes what a person paused.
pub const fn begin(is_multiregion: bool) -> (DeploymentPhase, DeploymentDescription) {
    if is_multiregion {
        (DeploymentPhase::Initializing, DeploymentDescription::PendingPeer)
    } else {
        (DeploymentPhase::Running, DeploymentDescription::Running)
    }
}

/// Where a deployment goes when all its groups are complete.
pub const fn complete(is_multiregion: bool) -> (DeploymentPhase, DeploymentDescription) {
    if is_multiregion {
        (DeploymentPhase::Blocked, DeploymentDescription::BlockedOnPeer)
    } else {
        (DeploymentPhase::Successful, DeploymentDescription::Successful)
    }
}

/// The regions that begin at once: the first `max_parallel`, or all where that is 0.
pub fn first(n_regions: usize, max_parallel: usize) -> Vec<PeerCall> {
    let most = if max_parallel == 0 { n_regions } else { max_parallel };
    (0..n_regions.min(most)).map(PeerCall::Run).collect()
}

/// What the peers are told now that this region's deployment stands at `phase`. `phases` are those of all regions in order, this
/// one's included.
pub fn next(here: Region, phase: DeploymentPhase, on_failure: OnFailure, phases: &[DeploymentPhase]) -> Vec<PeerCall> {
    let pending = |phase: &DeploymentPhase| matches!(phase, DeploymentPhase::Pending | DeploymentPhase::Initializing);
    match phase {
        DeploymentPhase::Running
        | DeploymentPhase::Paused
        | DeploymentPhase::Pending
        | DeploymentPhase::Initializing
        | DeploymentPhase::Unblocking
        | DeploymentPhase::Successful
        | DeploymentPhase::Cancelled => Vec::new(),
        DeploymentPhase::Blocked => {
            if phases.iter().all(|phase| *phase == DeploymentPhase::Blocked) {
                return (0..phases.len()).map(PeerCall::Unblock).collect();
            }
            phases.iter().position(pending).map(PeerCall::Run).into_iter().collect()
        }
        DeploymentPhase::Failed => {
            let active = |(region, phase): (usize, &DeploymentPhase)| {
                (region != here && phase.is_active()).then_some(PeerCall::Fail(region))
            };
            match on_failure {
                OnFailure::FailLocal => Vec::new(),
                OnFailure::FailAll => phases.iter().enumerate().filter_map(active).collect(),
                OnFailure::FailLater => {
                    let later = phases.iter().enumerate().skip(here + 1).filter(|(_, phase)| pending(phase));
                    later.map(|(region, _)| PeerCall::Fail(region)).collect()
                }
            }
        }
    }
}

/// Tells the peers what they are to be told, and returns what could not be told: it is tried again later. What fails here has
/// failed whatever the peers answer.
pub fn tell_all(calls: Vec<PeerCall>, peers: &mut impl Peers) -> Vec<(PeerCall, String)> {
    calls.into_iter().filter_map(|call| peers.tell(call).err().map(|error| (call, error))).collect()
}
