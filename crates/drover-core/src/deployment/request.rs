//! What people ask of a deployment, and why it may be refused (`spec/deployments.md` 8): the checks that are made
//! before a request is written, and again before it is acted on.

use std::collections::BTreeMap;
use std::fmt;

use drover_api::deployment::{DeploymentPhase, DeploymentStatus, GroupState, Promote};

/// What a person asks of a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeploymentRequest {
    /// Stop updating until it is resumed.
    Pause,
    /// Go on.
    Resume,
    /// Let it fail.
    Fail,
    /// Let the new version take over in all groups, or in these.
    Promote(Promote),
}

impl DeploymentRequest {
    const fn verb(&self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Fail => "fail",
            Self::Promote(_) => "promote",
        }
    }
}

/// A group without enough healthy canaries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Short {
    /// The group.
    pub group: String,
    /// Its live healthy canaries.
    pub healthy: i64,
    /// The canaries that it needs.
    pub needed: i64,
}

/// Why a call is refused. Nothing is changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestRefusal {
    /// It is over.
    #[error("cannot {verb} a terminal deployment: it is {phase}; act on the job's newest deployment")]
    Terminal {
        /// What was asked.
        verb: &'static str,
        /// How it ended.
        phase: DeploymentPhase,
    },
    /// Canaries are not healthy.
    #[error("cannot promote: {}; wait until they are healthy, or name only groups that are ready", Shorts(.0))]
    NotHealthy(Vec<Short>),
    /// A group that the deployment does not have.
    #[error("no such group in this deployment: {}; it has {}", .unknown.join(", "), .known.join(", "))]
    UnknownGroup {
        /// Those that are not there.
        unknown: Vec<String>,
        /// Those that are.
        known: Vec<String>,
    },
    /// No allocation was named.
    #[error("no allocation is named; name at least one, by its metadata.uid")]
    NoAllocations,
    /// Allocations that do not belong to the deployment.
    #[error("not allocations of this deployment: {}; name them by their metadata.uid", .0.join(", "))]
    ForeignAllocations(Vec<String>),
}

struct Shorts<'a>(&'a [Short]);

impl fmt::Display for Shorts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, short) in self.0.iter().enumerate() {
            let separator = if n == 0 { "" } else { ", " };
            write!(f, "{separator}group {} has {}/{} healthy canaries", short.group, short.healthy, short.needed)?;
        }
        Ok(())
    }
}

/// Whether a call may be made of a deployment in this phase.
///
/// # Errors
/// When the deployment is over.
pub fn check_phase(call: &DeploymentRequest, phase: DeploymentPhase) -> Result<(), RequestRefusal> {
    if !phase.is_active() {
        return Err(RequestRefusal::Terminal { verb: call.verb(), phase });
    }
    Ok(())
}

/// Whether a call may be made of a deployment that stands so.
///
/// # Errors
/// When the deployment is over, and for a promotion as [`promoted_groups`].
pub fn check(call: &DeploymentRequest, status: &DeploymentStatus) -> Result<(), RequestRefusal> {
    check_phase(call, status.phase)?;
    if let DeploymentRequest::Promote(request) = call {
        // Until they are promoted, only canaries of the new version run, so that what is healthy of it are canaries.
        let healthy: BTreeMap<String, i64> =
            status.groups.iter().map(|(name, state)| (name.clone(), state.healthy_allocs)).collect();
        promoted_groups(request, &status.groups, &healthy)?;
    }
    Ok(())
}

/// The groups that a promotion is for. `healthy` are the live healthy canaries of each group.
///
/// # Errors
/// When a group is unknown, or canaries are not healthy: all of them are named.
pub fn promoted_groups(
    request: &Promote,
    groups: &BTreeMap<String, GroupState>,
    healthy: &BTreeMap<String, i64>,
) -> Result<Vec<String>, RequestRefusal> {
    let unknown: Vec<String> = request.groups.iter().filter(|group| !groups.contains_key(*group)).cloned().collect();
    if !unknown.is_empty() {
        return Err(RequestRefusal::UnknownGroup { unknown, known: groups.keys().cloned().collect() });
    }
    let wanted = || groups.iter().filter(|(name, _)| request.all || request.groups.contains(name));
    let short: Vec<Short> = wanted()
        .filter_map(|(name, state)| {
            let has = healthy.get(name).copied().unwrap_or(0);
            let is_short = !state.promoted && has < state.desired_canaries;
            is_short.then(|| Short { group: name.clone(), healthy: has, needed: state.desired_canaries })
        })
        .collect();
    if short.is_empty() {
        Ok(wanted().map(|(name, _)| name.clone()).collect())
    } else {
        Err(RequestRefusal::NotHealthy(short))
    }
}
