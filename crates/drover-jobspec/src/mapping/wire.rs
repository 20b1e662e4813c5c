//! A job as Nomad's JSON and as HCL, in both directions as far as `convert` has not got them.

use drover_api::job::JobPhase;
use drover_api::{Job, JobSpec, label};
use drover_core::defaults;
use serde_json::{Map, Value as Json, json};

use super::report::Report;
use super::tables::JOB;
use super::{job, read_wire, usual, write_hcl, write_wire};
use crate::document::Block;
use crate::source::{Fault, Source};
use crate::tree::{Member, Node, Tree};

/// What stands beside the job in a request that registers or plans it.
const OF_REQUEST: [&str; 12] = [
    "Canonicalize",
    "Diff",
    "EnforceIndex",
    "EvalPriority",
    "JobModifyIndex",
    "Namespace",
    "PolicyOverride",
    "PreserveCounts",
    "PreserveResources",
    "Region",
    "SecretID",
    "Submission",
];

/// The manifest of a job in Nomad's JSON, alone or in a request.
pub(crate) fn manifest(tree: &Tree, source: Source<'_>) -> Result<Json, Vec<Fault>> {
    let mut report = Report::new(source);
    let inner = tree.member("Job").filter(|inner| !matches!(inner.node, Node::Null));
    match (inner, &tree.node) {
        (Some(_), Node::Map(members)) => {
            beside(members, ("Job", "the job"), &OF_REQUEST, &mut report);
        }
        (None, Node::Map(_)) if tree.member("ID").is_some() || tree.member("TaskGroups").is_some() => {}
        (None, Node::Map(_)) if tree.member("apiVersion").is_some() => {
            report.add(tree.offset, "is a manifest already, and needs no import; apply it as it is");
            return Err(report.into_faults());
        }
        _ => {
            report
                .add(tree.offset, "holds no job; write {\"Job\": {\"ID\": …, \"TaskGroups\": […]}}, or the job alone");
            return Err(report.into_faults());
        }
    }
    let read = read_wire::block("job", inner.unwrap_or(tree), &JOB, &mut report);
    let file = Block { blocks: vec![read], ..Block::default() };
    let mut faults = report.into_faults();
    match job::manifest(&file, source) {
        Ok(mut manifest) if faults.is_empty() => {
            usual::leave_out(&mut manifest);
            Ok(manifest)
        }
        found => {
            faults.extend(found.err().into_iter().flatten());
            faults.sort();
            Err(faults)
        }
    }
}

/// Refuses what stands beside the member that a request is about, and is none of those that may.
pub(super) fn beside(members: &[Member], (inner, what): (&str, &str), known: &[&str], report: &mut Report<'_>) {
    let is_other = |name: &str| name != inner && !known.contains(&name);
    for member in members.iter().filter(|member| is_other(&member.name) && !member.tree.is_nothing()) {
        report.add(member.tree.offset, format!("stands beside `{inner}`; move it into {what}, or remove it"));
    }
}

/// A job as Nomad's HTTP API shows it: every field is there, what the job leaves out with the value that Nomad fills
/// in.
///
/// Each group has its complete policies, and the count that `spec.scale` asks for where it does. `CreateIndex` is the
/// time of creation in seconds, `ModifyIndex` the resourceVersion, `JobModifyIndex` the generation. `SubmitTime` is the
/// time of creation, in nanoseconds; that of a later version is in its JobVersion. A dispatch whose groups are its
/// parent's has none here: give the job with the spec that `drover_core::dispatch::whole` makes.
pub fn wire_job(job: &Job) -> Json {
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let mut spec = defaults::canonical(&job.spec, name);
    scale(&mut spec);
    let mut fields = fields(&spec);
    fields.insert("namespace".to_owned(), job.metadata.namespace.as_deref().unwrap_or("default").into());
    let mut wire = write_wire::object(&fields, &JOB);
    wire.extend(state(job));
    Json::Object(wire)
}

/// A job as HCL, as people write it: what is as it is without being written is left out. Reading it gives the same job,
/// but for its state and what is decided while it runs (`stop`, `scale`, `dispatch`).
pub fn hcl(job: &Job) -> String {
    let mut fields = fields(&job.spec);
    let name = job.metadata.name.as_deref().unwrap_or_default();
    fields.entry("id").or_insert_with(|| name.into());
    if let Some(namespace) = &job.metadata.namespace {
        fields.insert("namespace".to_owned(), namespace.as_str().into());
    }
    write_hcl::block("job", &fields, &JOB, 0)
}

/// A spec by its fields. Every key of a spec is text, so that none is lost.
fn fields(spec: &JobSpec) -> Map<String, Json> {
    match serde_json::to_value(spec) {
        Ok(Json::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// The count at run time is the group's, as it is in Nomad.
fn scale(spec: &mut JobSpec) {
    let counts: Vec<i64> = spec.groups.iter().map(|group| spec.count_of(group)).collect();
    for (group, count) in spec.groups.iter_mut().zip(counts) {
        group.count = count;
    }
    spec.scale = None;
}

/// What the object says of the job's state.
fn state(job: &Job) -> Map<String, Json> {
    let status = job.status.as_ref();
    let created = job.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let version = job.metadata.resource_version.as_ref().and_then(|version| version.parse::<u64>().ok());
    let dispatch = job.spec.dispatch.as_ref();
    let parent = dispatch.map(|dispatch| dispatch.parent.as_str());
    let parent = parent
        .or_else(|| job.metadata.labels.as_ref().and_then(|labels| labels.get(label::PARENT)).map(String::as_str));
    let state = json!({
        "Status": status.map_or(JobPhase::Pending, |status| status.phase),
        "StatusDescription": "",
        "Version": status.and_then(|status| status.version).unwrap_or_default(),
        "Stable": status.is_some_and(|status| status.stable),
        "SubmitTime": created.map_or(0, |time| i64::try_from(time.as_nanosecond()).unwrap_or_default()),
        "ParentID": parent.unwrap_or_default(),
        "Dispatched": dispatch.is_some(),
        "Payload": dispatch.map(|dispatch| dispatch.payload.as_str()).filter(|payload| !payload.is_empty()),
        "CreateIndex": created.map_or(0, jiff::Timestamp::as_second),
        "ModifyIndex": version.unwrap_or_default(),
        "JobModifyIndex": job.metadata.generation.unwrap_or_default(),
    });
    match state {
        Json::Object(state) => state,
        _ => Map::new(),
    }
}
