//! A job file's job as a manifest.

use drover_api::names::object_name;
use serde_json::{Map, Value as Json, json};

use super::convert::object;
use super::report::Report;
use super::tables::JOB;
use crate::document::Block;
use crate::source::{Fault, Source};

/// The manifest of the only job of a file.
pub(crate) fn manifest(file: &Block, source: Source<'_>) -> Result<Json, Vec<Fault>> {
    let mut report = Report::new(source);
    let mut jobs = file.blocks.iter().filter(|block| block.kind == "job");
    let job = jobs.next();
    if let Some(second) = jobs.next() {
        report.add(second.offset, "a job file holds one job; put this one into a file of its own");
    }
    for block in file.blocks.iter().filter(|block| block.kind != "job") {
        report.add(block.offset, format!("a job file has no `{}`; it has job, variable and locals", block.kind));
    }
    for attribute in &file.attributes {
        report.add(attribute.offset, format!("`{}` stands outside of the job; move it into `job`", attribute.name));
    }
    let Some(job) = job else {
        report.add(0, "holds no job; write `job \"name\" { … }`");
        return Err(report.into_faults());
    };
    let mut spec = object(job, &JOB, &mut report);
    if !report.is_empty() {
        return Err(report.into_faults());
    }
    let id = job.labels.first().cloned().unwrap_or_default();
    let name = object_name(&id);
    if id == name {
        spec.shift_remove("id");
    }
    let mut metadata = Map::from_iter([("name".to_owned(), Json::String(name))]);
    if let Some(namespace) = spec.shift_remove("namespace") {
        metadata.insert("namespace".to_owned(), namespace);
    }
    Ok(json!({"apiVersion": drover_api::API_VERSION, "kind": "Job", "metadata": metadata, "spec": spec}))
}
