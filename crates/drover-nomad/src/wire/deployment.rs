//! Deployments.

use drover_api::Deployment;
use drover_api::deployment::{DeploymentDescription, GroupState, Rollback, RollbackResult};
use serde_json::{Map, Value, json};

use super::times::{created, created_nanos, date, nanos};
use crate::world::{World, job_id, namespace, uid, version};

/// A deployment; lists have the whole object too.
pub(crate) fn full(deployment: &Deployment, world: &World) -> Value {
    let (spec, meta) = (&deployment.spec, &deployment.metadata);
    let status = deployment.status.clone().unwrap_or_default();
    let job = world.jobs.named(namespace(meta), &spec.job_name);
    let job = job.filter(|job| job.metadata.uid.as_deref() == Some(spec.job_uid.as_str()));
    let groups: Map<String, Value> =
        status.groups.iter().map(|(name, of)| (name.clone(), group(of, namespace(meta), world))).collect();
    json!({
        "ID": uid(Some(meta)),
        "Namespace": namespace(meta),
        "JobID": job.map_or(spec.job_name.as_str(), |job| job_id(job)),
        "JobVersion": spec.job_version,
        "JobModifyIndex": spec.job_generation,
        "JobSpecModifyIndex": spec.job_generation,
        "JobCreateIndex": job.map_or(0, |job| created(&job.metadata)),
        "IsMultiregion": spec.is_multiregion,
        "TaskGroups": groups,
        "Status": status.phase,
        "StatusDescription": description(status.description, status.rollback.as_ref()),
        "CreateIndex": created(meta),
        "ModifyIndex": version(meta),
        "CreateTime": created_nanos(meta),
        "ModifyTime": status.modified_at.map_or_else(|| created_nanos(meta), nanos),
    })
}

fn group(group: &GroupState, namespace: &str, world: &World) -> Value {
    let canaries: Vec<&str> = group
        .placed_canaries
        .iter()
        .filter_map(|name| world.allocations.named(namespace, name)?.metadata.uid.as_deref())
        .collect();
    json!({
        "AutoRevert": group.auto_revert,
        "ProgressDeadline": group.progress_deadline.as_nanos(),
        "RequireProgressBy": date(group.require_progress_by),
        "Promoted": group.promoted,
        "PlacedCanaries": canaries,
        "DesiredCanaries": group.desired_canaries,
        "DesiredTotal": group.desired_total,
        "PlacedAllocs": group.placed_allocs,
        "HealthyAllocs": group.healthy_allocs,
        "UnhealthyAllocs": group.unhealthy_allocs,
    })
}

/// The sentence for people.
fn description(description: DeploymentDescription, rollback: Option<&Rollback>) -> String {
    let text = match description {
        DeploymentDescription::Running => "deployment in progress",
        DeploymentDescription::NeedsPromotion => "in progress, canaries wait for manual promotion",
        DeploymentDescription::AutoPromotion => "in progress, canaries promote automatically",
        DeploymentDescription::PendingPeer => "waits for the turn of its region",
        DeploymentDescription::Paused => "deployment is paused",
        DeploymentDescription::Successful => "deployment completed successfully",
        DeploymentDescription::BlockedOnPeer => "complete, waits for other regions",
        DeploymentDescription::Unblocking => "other regions are complete",
        DeploymentDescription::FailedAllocations => "failed because of unhealthy allocations",
        DeploymentDescription::ProgressDeadline => "failed because of the progress deadline",
        DeploymentDescription::FailedByUser => "failed by a person",
        DeploymentDescription::FailedByPeer => "failed because of another region",
        DeploymentDescription::StoppedJob => "cancelled because the job was stopped",
        DeploymentDescription::NewerJob => "cancelled because of a newer version of the job",
    };
    let Some(rollback) = rollback else { return text.to_owned() };
    let version = rollback.version.unwrap_or(0);
    match rollback.result {
        RollbackResult::RolledBack => format!("{text} - the job goes back to version {version}"),
        RollbackResult::RollbackSameSpec => format!("{text} - version {version} is the same, nothing to go back to"),
        RollbackResult::NoStableVersion => format!("{text} - there is no stable version to go back to"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d_044_the_sentence_names_the_version_that_the_job_goes_back_to() {
        let said =
            |result, version| description(DeploymentDescription::FailedByUser, Some(&Rollback { result, version }));
        assert_eq!(said(RollbackResult::RolledBack, Some(3)), "failed by a person - the job goes back to version 3");
        assert!(
            said(RollbackResult::RollbackSameSpec, Some(3)).ends_with("version 3 is the same, nothing to go back to")
        );
        assert!(said(RollbackResult::NoStableVersion, None).ends_with("there is no stable version to go back to"));
        assert_eq!(description(DeploymentDescription::FailedByUser, None), "failed by a person");
    }
}
