//! What is no longer needed (`spec/scheduler.md` 12).
//!
//! Input: the view and the time. Output: the objects to delete. Running things are never in question, and the newest
//! allocation of each slot stays, so that a finished batch slot does not run again. Must never know how objects are
//! deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_api::allocation::ClientStatus;
use drover_api::client_node::NodePhase;
use drover_api::job::{JobPhase, JobType};
use jiff::{SignedDuration, Timestamp};

use crate::ids::{AllocKey, JobKey, NodeName, ObjectKey};
use crate::model::{Alloc, Job, newest_of_slot};
use crate::snapshot::ClusterView;

/// How old what goes must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// For how long an ended allocation stays.
    pub alloc: SignedDuration,
    /// For how long one of a batch job stays.
    pub batch_alloc: SignedDuration,
    /// For how long an ended launch of a periodic job, or dispatch of a parameterized one, stays.
    pub job: SignedDuration,
    /// For how long a node that is down stays.
    pub node: SignedDuration,
    /// For how long a deployment that is over stays.
    pub deployment: SignedDuration,
    /// Ended allocations of a job whose slot a later one has held, that are kept at most.
    pub kept_allocs: usize,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            alloc: SignedDuration::from_hours(1),
            batch_alloc: SignedDuration::from_hours(24),
            job: SignedDuration::from_hours(4),
            node: SignedDuration::from_hours(24),
            deployment: SignedDuration::from_hours(1),
            kept_allocs: 100,
        }
    }
}

/// The allocations of a job that can go. O(its allocations).
pub fn allocations(view: &ClusterView, job: &JobKey, limits: &Thresholds, now: Timestamp) -> Vec<AllocKey> {
    let known = view.job(job);
    let mut slots: BTreeMap<SlotKey<'_>, Vec<&Arc<Alloc>>> = BTreeMap::new();
    for alloc in view.allocs_of_job(job) {
        slots.entry(slot(view, alloc)).or_default().push(alloc);
    }
    let newest: BTreeSet<&AllocKey> =
        slots.values().filter_map(|held| newest_of_slot(held)).map(|alloc| &alloc.key).collect();
    let is_past = |alloc: &&Arc<Alloc>| alloc.is_client_terminal() && !newest.contains(&alloc.key);
    let mut past: Vec<&Arc<Alloc>> = view.allocs_of_job(job).filter(is_past).collect();
    past.sort_by_key(|alloc| std::cmp::Reverse((alloc.last_event_at, alloc.created_at, &alloc.key)));
    let is_surplus = |at: usize, alloc: &Alloc| at >= limits.kept_allocs || is_old(view, known, alloc, limits, now);
    let gone = past.iter().enumerate().filter(|(at, alloc)| is_surplus(*at, alloc));
    gone.map(|(_, alloc)| alloc.key.clone()).collect()
}

/// Group, index, and the node where each has its own.
type SlotKey<'a> = (&'a str, i64, Option<&'a NodeName>);

fn slot<'a>(view: &ClusterView, alloc: &'a Alloc) -> SlotKey<'a> {
    let job_type = view.definition_of(alloc).map(|definition| definition.job_type());
    let is_per_node = matches!(job_type, Some(JobType::System | JobType::Sysbatch));
    (&alloc.group, alloc.index, is_per_node.then_some(&alloc.node))
}

/// Whether an ended allocation is old, and nothing will be decided on it any more.
fn is_old(view: &ClusterView, job: Option<&Arc<Job>>, alloc: &Alloc, limits: &Thresholds, now: Timestamp) -> bool {
    let age = now.duration_since(alloc.last_event_at);
    let Some(job) = job.filter(|job| !job.stopped) else { return age > limits.alloc };
    match job.definition.job_type() {
        JobType::Batch | JobType::Sysbatch => age > limits.batch_alloc && alloc.job_version < job.version,
        JobType::Service | JobType::System => age > limits.alloc && !may_be_replaced(view, job, alloc, now),
    }
}

/// Whether a failed allocation may be replaced still.
fn may_be_replaced(view: &ClusterView, job: &Job, alloc: &Alloc, now: Timestamp) -> bool {
    if alloc.client != ClientStatus::Failed || alloc.is_server_terminal() || view.next_of(alloc).is_some() {
        return false;
    }
    let Some(policy) = job.definition.group(&alloc.group).and_then(|group| group.reschedule.as_ref()) else {
        return false;
    };
    if policy.unlimited.unwrap_or(false) {
        return true;
    }
    let last = alloc
        .tracker
        .as_ref()
        .and_then(|tracker| tracker.events.last())
        .map_or(alloc.last_event_at, |event| event.time);
    let interval = policy.interval.map(drover_api::GoDuration::to_std).unwrap_or_default();
    let interval = SignedDuration::try_from(interval).unwrap_or(SignedDuration::MAX);
    policy.attempts.unwrap_or(0) > 0 && now.duration_since(last) <= interval
}

/// Whether a node that went down that long ago can go: it has been down for long, and all of its allocations have
/// ended.
pub fn is_node_over(
    view: &ClusterView,
    node: &NodeName,
    phase: NodePhase,
    age: SignedDuration,
    limits: &Thresholds,
) -> bool {
    phase == NodePhase::Down && age > limits.node && view.allocs_on_node(node).all(|alloc| alloc.is_client_terminal())
}

/// The deployments of a job that can go: over for long, not its newest, and no live allocation belongs to them.
pub fn deployments(view: &ClusterView, job: &JobKey, limits: &Thresholds, now: Timestamp) -> Vec<ObjectKey> {
    let newest = view.latest_deployment(job).map(|latest| &latest.key);
    let in_use: BTreeSet<&str> = view
        .allocs_of_job(job)
        .filter(|alloc| !alloc.is_client_terminal())
        .filter_map(|alloc| alloc.deployment.as_deref())
        .collect();
    let is_over = |deployment: &&Arc<crate::model::Deployment>| {
        !deployment.phase.is_active()
            && Some(&deployment.key) != newest
            && now.duration_since(deployment.created_at) > limits.deployment
            && !in_use.contains(&*deployment.key.name)
    };
    view.deployments_of_job(job).filter(is_over).map(|deployment| deployment.key.clone()).collect()
}

/// Whether a job that drover or a command made of another one can go. One that a person made, as Git does, stays: it
/// would be made, and run, again.
pub fn is_launch_over(id: &str, phase: JobPhase, age: SignedDuration, limits: &Thresholds) -> bool {
    let is_made = id.contains("/periodic-") || id.contains("/dispatch-");
    is_made && phase == JobPhase::Dead && age > limits.job
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scheduler::tests::{World, key, now, spec};

    fn ago(hours: i64) -> Timestamp {
        now() - SignedDuration::from_hours(hours)
    }

    fn collected(world: &World) -> Vec<String> {
        allocations(&world.view, &key(), &Thresholds::default(), now()).iter().map(|key| key.name.to_string()).collect()
    }

    /// One failed allocation two hours ago in slot 0; with another one after it, or none.
    fn failed(is_replaced: bool) -> World {
        let mut spec = spec(1);
        spec["groups"][0]["reschedule"] = json!({ "delay": "30s", "unlimited": true });
        let mut world = World::new(&spec);
        world.allocs(0..1, |alloc| {
            alloc.key = JobKey::new("shop", "old");
            alloc.client = ClientStatus::Failed;
            alloc.last_event_at = ago(2);
        });
        if is_replaced {
            world.allocs(0..1, |alloc| {
                alloc.key = JobKey::new("shop", "new");
                alloc.previous = Some("old".into());
            });
        }
        world
    }

    #[test]
    fn s_180_a_failed_allocation_stays_until_it_is_replaced() {
        assert_eq!(collected(&failed(false)), Vec::<String>::new());
        assert_eq!(collected(&failed(true)), ["old"]);
    }

    #[test]
    fn s_181_a_node_that_is_down_stays_while_something_may_run_there() {
        let mut world = World::new(&spec(1));
        let over = |world: &World, hours| {
            is_node_over(
                &world.view,
                &"n-0".into(),
                NodePhase::Down,
                SignedDuration::from_hours(hours),
                &Thresholds::default(),
            )
        };
        world.allocs(0..1, |_| {});
        assert!(!over(&world, 25));
        world.allocs(0..1, |alloc| {
            alloc.key = world_key();
            alloc.client = ClientStatus::Lost;
        });
        let running: Vec<AllocKey> =
            world.view.allocs().filter(|alloc| !alloc.is_client_terminal()).map(|alloc| alloc.key.clone()).collect();
        for key in running {
            world.view.remove_alloc(&key);
        }
        assert!(over(&world, 25) && !over(&world, 23));
    }

    fn world_key() -> AllocKey {
        JobKey::new("shop", "lost")
    }

    #[test]
    fn s_182_what_a_batch_job_has_done_in_this_version_stays() {
        let mut spec = spec(1);
        spec["type"] = json!("batch");
        spec["groups"][0].as_object_mut().unwrap().remove("update");
        for (version, wanted) in [(1, 0), (0, 1)] {
            let mut world = World::new(&spec);
            world.allocs(0..1, |alloc| {
                alloc.key = JobKey::new("shop", "done");
                alloc.client = ClientStatus::Complete;
                alloc.job_version = version;
                alloc.last_event_at = ago(48);
            });
            assert_eq!(collected(&world).len(), 0, "the newest of its slot");
            world.allocs(0..1, |alloc| {
                alloc.key = JobKey::new("shop", "next");
                alloc.previous = Some("done".into());
            });
            assert_eq!(collected(&world).len(), wanted);
        }
    }

    #[test]
    fn ended_launches_go_after_their_time_and_what_people_made_stays() {
        let over = |id: &str, phase, hours| {
            is_launch_over(id, phase, SignedDuration::from_hours(hours), &Thresholds::default())
        };
        assert!(over("a/periodic-1", JobPhase::Dead, 5) && over("a/dispatch-1-0", JobPhase::Dead, 5));
        assert!(!over("a/periodic-1", JobPhase::Dead, 3), "too young");
        assert!(!over("a/periodic-1", JobPhase::Running, 5));
        assert!(!over("monday", JobPhase::Dead, 5), "Git would make it again");
    }

    #[test]
    fn of_a_job_that_churns_the_newest_hundred_stay() {
        let mut world = World::new(&spec(1));
        for n in 0..150_i64 {
            world.allocs(0..1, |alloc| {
                alloc.key = JobKey::new("shop", format!("a-{n:03}"));
                alloc.previous = (n > 0).then(|| format!("a-{:03}", n - 1).into());
                alloc.client = ClientStatus::Complete;
                alloc.last_event_at = now() - SignedDuration::from_secs(200 - n);
            });
        }
        let gone = collected(&world);
        assert_eq!(gone.len(), 49);
        assert!(gone.contains(&"a-000".to_owned()) && !gone.contains(&"a-149".to_owned()));
    }
}
