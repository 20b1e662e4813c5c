//! Which version a failed deployment goes back to (`spec/deployments.md` 8.2).

use drover_api::deployment::{Rollback, RollbackResult};
use drover_api::{JobSpec, JobVersion, JobVersionSpec};

use crate::definition::is_same_version;

/// A version of the job, as far as going back to it needs.
#[derive(Clone, Copy, Debug)]
pub struct VersionFacts<'a> {
    /// Its number.
    pub number: i64,
    /// Whether it was deployed successfully.
    pub is_stable: bool,
    /// The intent that made it; empty where a person did.
    pub intent: &'a str,
    /// What it runs.
    pub spec: &'a JobSpec,
}

impl<'a> VersionFacts<'a> {
    /// Those of a stored version.
    pub fn of(version: &'a JobVersion) -> Self {
        let JobVersionSpec { version: number, intent, job: spec, .. } = &version.spec;
        Self { number: *number, is_stable: version.is_stable(), intent, spec }
    }
}

/// Where to go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// This stable version is restored.
    Restore(i64),
    /// The newest stable version, which has this number, is what failed: there is nothing to go back to.
    Same(i64),
    /// No version is stable.
    None,
}

/// The newest stable version of the job's history, unless what it runs is what `failed` runs. Without the exception a
/// version that was once stable would be restored, fail and be restored forever.
fn target(versions: &[VersionFacts<'_>], failed: &JobSpec) -> Target {
    let stable = versions.iter().filter(|version| version.is_stable).max_by_key(|version| version.number);
    match stable {
        None => Target::None,
        Some(stable) if is_same_version(stable.spec, failed) => Target::Same(stable.number),
        Some(stable) => Target::Restore(stable.number),
    }
}

/// Where a deployment of this version goes back to when it fails. None where a newer version is on its way already,
/// which no older one replaces, and where its own is not known.
pub fn goes_back_to(versions: &[VersionFacts<'_>], version: i64) -> Option<Target> {
    let failed = versions.iter().find(|one| one.number == version)?;
    let is_newest = versions.iter().all(|one| one.number <= failed.number);
    is_newest.then(|| target(versions, failed.spec))
}

impl Target {
    /// What the deployment's status says of it.
    pub fn outcome(self) -> Rollback {
        let (result, version) = match self {
            Self::Restore(number) => (RollbackResult::RolledBack, Some(number)),
            Self::Same(number) => (RollbackResult::RollbackSameSpec, Some(number)),
            Self::None => (RollbackResult::NoStableVersion, None),
        };
        Rollback { result, version }
    }
}
