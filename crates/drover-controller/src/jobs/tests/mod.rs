//! What becomes of jobs in a cluster: the writes that follow each change, and what stands in the store at the end.

mod accidents;
mod dispatch;
mod life;
mod limits;
mod periodic;

use drover_api::Job;
use drover_api::job::JobConditionType;

use crate::tests::World;

/// A condition of a job's status, as `True AllHealthy`.
fn condition(world: &World, name: &str, kind: JobConditionType) -> Option<String> {
    let status = world.the::<Job>(name).status?;
    status.conditions.iter().find(|one| one.r#type == kind).map(|one| format!("{} {}", one.status, one.reason))
}

/// What a condition of a job's status says; nothing where it has none.
fn message(world: &World, name: &str, kind: JobConditionType) -> String {
    let status = world.the::<Job>(name).status.unwrap_or_default();
    status.conditions.into_iter().find(|one| one.r#type == kind).map(|one| one.message).unwrap_or_default()
}

/// How many events begin so.
fn told(world: &World, begin: &str) -> usize {
    world.events().iter().filter(|event| event.starts_with(begin)).count()
}
