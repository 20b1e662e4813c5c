//! Roll-outs in a cluster, from the changed spec to the stable version or back.

mod accidents;
mod canaries;
mod failures;
mod pace;

use drover_api::deployment::DeploymentStatus;
use drover_api::{Deployment, Job, JobVersion};
use drover_store::{Object, Part};
use serde_json::{Value, json};

use crate::tests::{World, group, job};

/// A service whose groups have these rules for updates and run this image.
fn rolled(groups: &[(&str, i64, Value)], image: &str) -> Job {
    let groups: Vec<Value> = groups
        .iter()
        .map(|(name, count, update)| {
            let mut of = group(name, *count);
            of["update"] = update.clone();
            of["tasks"][0]["config"]["image"] = json!(image);
            of
        })
        .collect();
    job("web", &json!({ "groups": groups }))
}

/// Applies another image to all groups.
fn apply(world: &World, image: &str) {
    let mut groups = serde_json::to_value(&world.the::<Job>("web").spec.groups).unwrap();
    for of in groups.as_array_mut().unwrap() {
        of["tasks"][0]["config"]["image"] = json!(image);
    }
    world.change_job("web", &json!({ "groups": groups }));
}

/// The deployment of a version.
fn deployment(world: &World, version: i64) -> Deployment {
    let found = world.all::<Deployment>().into_iter().find(|one| one.spec.job_version == version);
    found.unwrap_or_else(|| panic!("no deployment of version {version}"))
}

fn status(world: &World, version: i64) -> DeploymentStatus {
    deployment(world, version).status.unwrap_or_default()
}

/// Phase and description of the deployment of a version, as `running Running`.
fn standing(world: &World, version: i64) -> String {
    let status = status(world, version);
    format!("{} {}", status.phase, status.description)
}

/// What a person asks of the deployment of a version.
fn ask(world: &World, version: i64, spec: &Value) {
    let key = deployment(world, version).key();
    world.merge::<Deployment>(&key, Part::Spec, json!({ "spec": spec }));
}

/// How many allocations of a version are to run and do.
fn running(world: &World, version: i64) -> usize {
    let runs = |shown: &&String| shown.contains(&format!("] v{version} on ")) && shown.ends_with("run running");
    world.shown("web").iter().filter(runs).count()
}

/// How many allocations are to run and do.
fn all_running(world: &World) -> usize {
    world.shown("web").iter().filter(|shown| shown.ends_with("run running")).count()
}

fn is_stable(world: &World, version: i64) -> bool {
    world.the::<JobVersion>(&format!("web-v{version}")).is_stable()
}
