//! Which deployment of a job is the newest.

use std::sync::Arc;

use drover_api::Deployment;
use drover_api::names::deployment_name;
use jiff::Timestamp;

use crate::model;

/// What tells how old a deployment is.
#[derive(Clone, Copy, Debug)]
pub struct DeploymentAge<'a> {
    created_at: Timestamp,
    version: i64,
    name: &'a str,
    uid: &'a str,
    job: &'a str,
    job_uid: &'a str,
}

impl DeploymentAge<'_> {
    /// Whether it was made when the other one was its job's newest.
    fn is_next_of(&self, other: &DeploymentAge<'_>) -> bool {
        *self.name == deployment_name(self.job, self.job_uid, self.version, Some(other.uid))
    }
}

/// A deployment, in whichever form.
pub trait Aged {
    /// How old it is.
    fn age(&self) -> DeploymentAge<'_>;
}

impl Aged for model::Deployment {
    fn age(&self) -> DeploymentAge<'_> {
        DeploymentAge {
            created_at: self.created_at,
            version: self.job_version,
            name: &self.key.name,
            uid: self.uid.as_str(),
            job: &self.job.name,
            job_uid: self.job_uid.as_str(),
        }
    }
}

impl Aged for Deployment {
    fn age(&self) -> DeploymentAge<'_> {
        let (meta, spec) = (&self.metadata, &self.spec);
        DeploymentAge {
            created_at: meta.creation_timestamp.as_ref().map_or(Timestamp::MIN, |at| at.0),
            version: spec.job_version,
            name: meta.name.as_deref().unwrap_or_default(),
            uid: meta.uid.as_deref().unwrap_or_default(),
            job: &spec.job_name,
            job_uid: &spec.job_uid,
        }
    }
}

impl<D: Aged> Aged for Arc<D> {
    fn age(&self) -> DeploymentAge<'_> {
        (**self).age()
    }
}

/// The newest of the deployments of a job. The API server dates objects to the second: of those of one second and
/// version it is the one that none was made after, as their names tell. O(their number, and the square of those of the
/// last second).
pub fn newest<'a, D: Aged + 'a>(of_job: impl Iterator<Item = &'a D>) -> Option<&'a D> {
    let all: Vec<(&D, DeploymentAge<'_>)> = of_job.map(|one| (one, one.age())).collect();
    let last = all.iter().map(|(_, age)| (age.created_at, age.version)).max()?;
    let of_last = || all.iter().filter(|(_, age)| (age.created_at, age.version) == last);
    let has_next = |age: &DeploymentAge<'_>| of_last().any(|(_, other)| other.is_next_of(age));
    of_last().find(|(_, age)| !has_next(age)).or_else(|| of_last().next_back()).map(|(one, _)| *one)
}
