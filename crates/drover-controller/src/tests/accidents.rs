//! One accident at each single write of a story: whatever befalls, the story has the end that it has without.
//!
//! Stories are told by the components' own tests; what differs is told with the write that it befell.

use std::fmt::Write as _;

use drover_api::allocation::DesiredStatus;
use drover_api::{Allocation, CSIVolume, ClientNode, Deployment, HostVolume, Job, JobVersion};
use drover_store::Object;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::store::Accident;
use super::world::World;

/// What befalls a write. That a leader dies after one and before the next is the same point: each is met once, from
/// either side in turn.
fn accidents_at(write: usize) -> impl Iterator<Item = Accident> {
    let deaths: &[Accident] =
        if write.is_multiple_of(2) { &[Accident::DeathBefore, Accident::DeathAfter] } else { &[] };
    [Accident::Refused, Accident::Conflict, Accident::AnswerLost].into_iter().chain(deaths.iter().copied())
}

/// A world in which a story is played.
pub(crate) trait Scene {
    fn world(&mut self) -> &mut World;
    /// So many seconds pass in which agents do what they are asked for.
    async fn live(&mut self, seconds: u64);
}

/// What people do, and the seconds that pass after it.
type Act<S> = (fn(&mut S), u64);

/// What people do in a world, one act after the other.
pub(crate) struct Story<S: 'static> {
    pub(crate) begin: fn() -> S,
    pub(crate) acts: &'static [Act<S>],
}

/// Plays a story once for each of its writes and each accident.
pub(crate) async fn no_accident_changes_the_end<S: Scene + 'static>(story: Story<S>) {
    let (writes, expected) = played(&story, None).await;
    let mut differences = Vec::new();
    for (before, write) in writes.iter().enumerate() {
        for accident in accidents_at(before) {
            let (_, end) = played(&story, Some((before, accident))).await;
            if end != expected {
                differences.push(format!("{accident:?} at write {before}, {write}:\n{}", difference(&expected, &end)));
            }
        }
    }
    assert!(writes.len() > 5, "a story without writes: {writes:?}");
    assert!(differences.is_empty(), "{} endings differ\n{}", differences.len(), differences.join("\n"));
}

/// The writes of a story, and its end.
async fn played<S: Scene + 'static>(story: &Story<S>, accident: Option<(usize, Accident)>) -> (Vec<String>, String) {
    let mut scene = (story.begin)();
    scene.world().store.take_writes();
    if let Some((before, accident)) = accident {
        scene.world().store.arrange(before, accident);
    }
    for (act, seconds) in story.acts {
        act(&mut scene);
        scene.live(*seconds).await;
        scene.world().collect_garbage();
    }
    (scene.world().writes(), end(scene.world()))
}

/// What a cluster has come to, without names that differ from run to run and without times.
fn end(world: &World) -> String {
    let mut lines = Vec::new();
    lines.extend(world.all::<Job>().iter().map(shown_job));
    lines.extend(world.all::<JobVersion>().iter().map(|version| {
        let spec = &version.spec;
        format!("version {} of {}: stable {}", spec.version, spec.job_name, version.is_stable())
    }));
    lines.extend(world.all::<Deployment>().iter().map(|one| {
        let status = one.status.clone().unwrap_or_default();
        format!(
            "deployment of {} v{}: {} {}",
            one.spec.job_name, one.spec.job_version, status.phase, status.description
        )
    }));
    // Which of several slots was on which node may differ; that each has one holder may not.
    let held = world.allocs().into_iter().filter(|alloc| alloc.spec.desired_status == DesiredStatus::Run);
    lines.extend(held.map(|alloc| format!("slot {} {}[{}]", alloc.spec.job_name, alloc.spec.group, alloc.spec.index)));
    lines.extend(world.allocs().iter().map(shown_alloc));
    lines.extend(world.all::<ClientNode>().iter().map(shown_node));
    lines.extend(world.all::<CSIVolume>().iter().map(|volume| {
        let status = volume.status.clone().unwrap_or_default();
        let claims = status.claims.iter().map(|claim| format!("{} {} {}", claim.mode, claim.state, claim.attach));
        let claims: Vec<String> = claims.collect();
        format!("volume {}: {} {claims:?} {:?}", volume.key(), status.phase, volume.metadata.finalizers)
    }));
    lines.extend(world.all::<HostVolume>().iter().map(|volume| {
        let status = volume.status.clone().unwrap_or_default();
        format!("host volume {}: {} {:?}", volume.key(), status.phase, volume.metadata.finalizers)
    }));
    lines.extend(world.all::<Service>().iter().map(|service| format!("service {}", service.key())));
    lines.extend(world.all::<EndpointSlice>().iter().map(|slice| {
        let endpoints = slice.endpoints.iter().flatten();
        let ready = endpoints.map(|one| one.conditions.as_ref().and_then(|conditions| conditions.ready));
        format!("slice: {:?}", ready.collect::<Vec<_>>())
    }));
    lines.sort();
    lines.join("\n")
}

fn shown_job(job: &Job) -> String {
    let status = job.status.clone().unwrap_or_default();
    let mut line = format!("job {}: {} v{:?} stable {}", job.key(), status.phase, status.version, status.stable);
    for (group, summary) in &status.summary {
        let _ = write!(line, " {group} {summary:?}");
    }
    let _ = write!(line, " {:?}", job.metadata.finalizers);
    line
}

fn shown_alloc(alloc: &Allocation) -> String {
    let (spec, status) = (&alloc.spec, alloc.status.clone().unwrap_or_default());
    let healthy = status.health.map(|health| health.healthy);
    format!(
        "alloc {} {} v{}: {} {} {} canary {} healthy {healthy:?} {:?}",
        spec.job_name,
        spec.group,
        spec.job_version,
        spec.desired_status,
        spec.desired_description,
        status.client_status,
        spec.canary,
        alloc.metadata.finalizers
    )
}

fn shown_node(node: &ClientNode) -> String {
    let status = node.status.clone().unwrap_or_default();
    let drain = status.drain.map(|drain| drain.status);
    let asked = status.csi_requests.len() + status.volume_requests.len();
    format!("node {}: {} {} {drain:?} asked {asked}", node.key(), status.phase, node.spec.eligibility)
}

/// The lines that only one of two ends has.
fn difference(expected: &str, end: &str) -> String {
    let only = |of: &str, not_in: &str, sign: &str| {
        let mut left: Vec<&str> = not_in.lines().collect();
        let mut lines = Vec::new();
        for line in of.lines() {
            match left.iter().position(|one| *one == line) {
                Some(at) => drop(left.remove(at)),
                None => lines.push(format!("  {sign} {line}")),
            }
        }
        lines
    };
    [only(expected, end, "-"), only(end, expected, "+")].concat().join("\n")
}
