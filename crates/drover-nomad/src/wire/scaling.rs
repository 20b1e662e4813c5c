//! Scaling policies: what an autoscaler reads of the groups that have limits. They are not objects; their ids are
//! derived from their jobs'.

use drover_api::Job;
use drover_api::group::{Group, Scaling};
use drover_core::evaluation_id;
use serde_json::{Value, json};

use super::times::created;
use crate::full_job::spec;
use crate::world::{World, job_id, namespace, uid, version};

/// The policy of a group.
#[derive(Clone, Debug)]
pub(crate) struct ScalingPolicy<'a> {
    /// Its job.
    pub(crate) job: &'a Job,
    group: String,
    count: i64,
    scaling: Scaling,
}

/// The policies of a job.
pub(crate) fn of_job<'a>(job: &'a Job, world: &World) -> Vec<ScalingPolicy<'a>> {
    let policy = |group: &Group| {
        let scaling = group.scaling.clone()?;
        Some(ScalingPolicy { job, group: group.name.clone(), count: group.count, scaling })
    };
    spec(job, world).groups.iter().filter_map(policy).collect()
}

/// A policy of a namespace by its id.
pub(crate) fn policy<'a>(world: &'a World, namespace: &str, id: &str) -> Option<ScalingPolicy<'a>> {
    let jobs = world.jobs_of_tag(namespace, evaluation_id::tag_of(id)?);
    jobs.flat_map(|job| of_job(job, world)).find(|policy| policy.id() == id)
}

impl ScalingPolicy<'_> {
    /// Its id, a UUID.
    pub(crate) fn id(&self) -> String {
        evaluation_id::of_policy(uid(Some(&self.job.metadata)), &self.group)
    }

    fn target(&self) -> Value {
        json!({ "Namespace": namespace(&self.job.metadata), "Job": job_id(self.job), "Group": self.group })
    }

    fn is_enabled(&self) -> bool {
        self.scaling.enabled.unwrap_or(true) && !self.job.spec.stop
    }

    /// What lists have of it.
    pub(crate) fn stub(&self) -> Value {
        json!({
            "ID": self.id(), "Enabled": self.is_enabled(), "Type": "horizontal", "Target": self.target(),
            "CreateIndex": created(&self.job.metadata), "ModifyIndex": version(&self.job.metadata),
        })
    }

    /// The whole policy. Without a least count it is 1, without a most count the group's own.
    pub(crate) fn full(&self) -> Value {
        let Scaling { min, max, policy, .. } = &self.scaling;
        json!({
            "ID": self.id(), "Namespace": namespace(&self.job.metadata), "Enabled": self.is_enabled(),
            "Type": "horizontal", "Target": self.target(), "Policy": policy,
            "Min": min.unwrap_or(1), "Max": max.unwrap_or(self.count),
            "CreateIndex": created(&self.job.metadata), "ModifyIndex": version(&self.job.metadata),
        })
    }
}
