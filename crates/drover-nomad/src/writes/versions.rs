//! Versions of jobs: brought back, called stable or not, and named.
//!
//! Who may: to bring one back takes what registering it takes. The others change nothing that runs, and no role of
//! people has a right to a version's status, so that the Job's own right counts, as it does for its spec, from which
//! versions come. What an automatic revert would go back to is more: the leader runs it without asking its author
//! again. It is chosen by those who have the rights to register it.

use std::sync::Arc;

use drover_api::job_version::JobVersionColumns;
use drover_api::{Job, JobSpec, JobVersion, JobVersionStatus};
use drover_core::definition::is_same_version;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::{self, check_id};
use super::endpoint::VersionTag;
use super::following::registered;
use super::order::{Change, Target, WriteOrder, WriteView};
use super::{authors, jobs};
use crate::fault::Fault;
use crate::wire::job::version_tag;
use crate::world::{Kind, namespace};

/// A version of a job, by its number.
fn find<'a>(number: i64, job: &'a Job, view: WriteView<'a>) -> Result<&'a Arc<JobVersion>, Fault> {
    let found = view.world.own_versions(job).find(|it| it.spec.version == number);
    found.ok_or_else(|| Fault::missing("version", &format!("{number} of job {}", crate::world::job_id(job))))
}

/// The spec of a job that gets that of a version again.
fn restored(job: &Job, version: &JobVersion) -> JobSpec {
    JobSpec { scale: job.spec.scale.clone(), ..version.spec.job.clone() }
}

/// Gives a job the spec of one of its versions.
pub(super) fn revert(id: &str, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    #[derive(Debug, Default, Deserialize)]
    #[serde(rename_all = "PascalCase", default)]
    struct Body {
        #[serde(rename = "JobID")]
        job_id: String,
        job_version: i64,
        enforce_prior_version: Option<i64>,
    }
    let Body { job_id, job_version, enforce_prior_version } = body::read(view.body)?;
    check_id("JobID", &job_id, id, true)?;
    let job = jobs::find(id, view)?;
    let (space, name) = (namespace(&job.metadata), job.metadata.name.as_deref().unwrap_or_default());
    let current = job.status.as_ref().and_then(|status| status.version);
    if let Some(wanted) = enforce_prior_version.filter(|wanted| Some(*wanted) != current) {
        let current = current.map_or_else(|| "none".to_owned(), |current| current.to_string());
        return Err(Fault::bad(format!("EnforcePriorVersion is {wanted}, and job {id:?} has version {current}")));
    }
    let spec = restored(job, find(job_version, job, view)?);
    if Some(job_version) == current || (is_same_version(&spec, &job.spec) && !job.spec.stop) {
        return Err(Fault::bad(format!("job {id:?} has the spec of version {job_version} already: name another one")));
    }
    let demands = authors::of_job(space, name, Some(&job.spec), &spec);
    let is_template = jobs::is_template(job);
    let change = Change::Replace(Job { spec, ..Job::clone(job) }.into());
    Ok(WriteOrder::new(demands, vec![change], registered(view.now, is_template, Vec::new())))
}

/// Calls a version stable, or not: what an automatic revert goes back to is the newest one that is.
pub(super) fn stable(id: &str, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    #[derive(Debug, Default, Deserialize)]
    #[serde(rename_all = "PascalCase", default)]
    struct Body {
        #[serde(rename = "JobID")]
        job_id: String,
        job_version: i64,
        stable: bool,
    }
    let Body { job_id, job_version, stable } = body::read(view.body)?;
    check_id("JobID", &job_id, id, true)?;
    let job = jobs::find(id, view)?;
    let version = find(job_version, job, view)?;
    let after = |it: &JobVersion| if it.spec.version == job_version { stable } else { it.is_stable() };
    let chosen = newest(job, view, after).filter(|chosen| Some(*chosen) != newest(job, view, JobVersion::is_stable));
    let spec = chosen.map_or_else(|| job.spec.clone(), |chosen| restored(job, chosen));
    let (space, name) = (namespace(&job.metadata), job.metadata.name.as_deref().unwrap_or_default());
    let demands = authors::of_job(space, name, Some(&job.spec), &spec);
    // One that was seen by no leader yet is not to be marked by it against what a user says.
    let seen = version.metadata.generation;
    let columns = json!({ "stable": stable.to_string() });
    let change = patch(version, &json!({ "observedGeneration": seen, "stable": stable, "columns": columns }));
    let generation = job.metadata.generation.unwrap_or(0);
    Ok(WriteOrder::new(demands, vec![change], move |_| json!({ "JobModifyIndex": generation })))
}

/// Gives a version a name, by which it is kept; without a number the newest one. It has no other name then.
pub(super) fn apply_tag(tag: &VersionTag, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    #[derive(Debug, Default, Deserialize)]
    #[serde(rename_all = "PascalCase", default)]
    struct Body {
        version: Option<i64>,
        /// The newest one, where `Version` is 0: clients that cannot leave it out say so.
        latest: bool,
        description: String,
    }
    let Body { version, latest, description } = body::read(view.body)?;
    let job = jobs::find(&tag.job, view)?;
    let version = match version.filter(|number| *number != 0 || !latest) {
        Some(number) => find(number, job, view)?,
        None => newest(job, view, |_| true).ok_or_else(|| Fault::missing("versions of job", &tag.job))?,
    };
    if let Some(other) = tagged(&tag.name, job, view).filter(|other| other.spec.version != version.spec.version) {
        return Err(Fault::bad(format!(
            "tag {:?} is that of version {} of job {:?}: unset it there first, or take another name",
            tag.name, other.spec.version, tag.job
        )));
    }
    let status = JobVersionStatus {
        tag: Some(tag.name.clone()),
        tag_description: description,
        tagged_at: Some(view.now),
        ..JobVersionStatus::default()
    };
    Ok(ordered(job, version, &status))
}

/// Takes a name away. The version goes with others when there are newer ones.
pub(super) fn unset_tag(tag: &VersionTag, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    let job = jobs::find(&tag.job, view)?;
    let missing = || Fault::missing("tag", &format!("{} of job {}", tag.name, tag.job));
    let version = tagged(&tag.name, job, view).ok_or_else(missing)?;
    Ok(ordered(job, version, &JobVersionStatus::default()))
}

/// The version with a name.
fn tagged<'a>(name: &str, job: &'a Job, view: WriteView<'a>) -> Option<&'a Arc<JobVersion>> {
    view.world.own_versions(job).find(|it| it.tag() == Some(name))
}

/// The newest of some versions.
fn newest<'a>(job: &'a Job, view: WriteView<'a>, is_one: impl Fn(&JobVersion) -> bool) -> Option<&'a Arc<JobVersion>> {
    view.world.own_versions(job).filter(|it| is_one(it)).max_by_key(|it| it.spec.version)
}

/// The tag of this status, written.
fn ordered(job: &Job, version: &JobVersion, status: &JobVersionStatus) -> WriteOrder {
    let column = status.tag.clone().unwrap_or_else(|| JobVersionColumns::default().tag);
    let description = Some(&status.tag_description).filter(|text| !text.is_empty());
    let change = patch(
        version,
        &json!({
            "tag": status.tag, "tagDescription": description, "taggedAt": status.tagged_at,
            "columns": { "tag": column },
        }),
    );
    let answer = Some(version_tag(status)).filter(Value::is_object).unwrap_or_else(|| json!({}));
    WriteOrder::new(vec![jobs::update(job, "")], vec![change], move |_| answer)
}

/// A change of a status that is still as it was: another caller may have given it another name meanwhile.
fn patch(version: &JobVersion, status: &Value) -> Change {
    Change::Patch(Target::unchanged(Kind::Version, &version.metadata), json!({ "status": status }))
}
