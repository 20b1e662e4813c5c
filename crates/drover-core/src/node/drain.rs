//! How allocations leave nodes that are being drained (`spec/scheduler.md` 10).
//!
//! Input: the view, and which nodes are drained how. Output: the allocations to mark, which nodes are done, and how
//! many allocations still hold each. A mark is a request; the scheduler stops and replaces. Must never know rooms or
//! scores.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drover_api::allocation::DesiredTransition;
use drover_api::client_node::Drain;
use drover_api::job::JobType;
use jiff::{SignedDuration, Timestamp};

use crate::defaults;
use crate::ids::{JobKey, NodeName};
use crate::model::{Alloc, Job};
use crate::snapshot::ClusterView;

/// How long a drain may take by default.
const DEFAULT_DEADLINE: Duration = Duration::from_hours(1);
/// Deadlines that are so close are handled together.
const TOGETHER: SignedDuration = SignedDuration::from_secs(5);

/// A node's drain under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// When those still there are stopped; none for never.
    pub force_deadline: Option<Timestamp>,
    /// Whether all leave at once.
    pub is_forced: bool,
    /// Whether allocations of system jobs stay.
    pub ignores_system_jobs: bool,
}

impl Leaving {
    /// A drain that was asked for, or changed, now.
    pub fn begun(drain: &Drain, now: Timestamp) -> Self {
        let given = drain.deadline.map_or(Some(DEFAULT_DEADLINE), |deadline| {
            let deadline = deadline.to_std();
            (!deadline.is_zero()).then_some(deadline)
        });
        Self {
            force_deadline: given.and_then(|after| now.checked_add(after).ok()),
            is_forced: drain.force,
            ignores_system_jobs: drain.ignore_system_jobs,
        }
    }
}

/// An allocation that is to leave.
#[derive(Clone, Debug, PartialEq)]
pub struct DrainMark {
    /// Which one.
    pub alloc: Arc<Alloc>,
    /// What is requested of it from now on.
    pub transition: DesiredTransition,
}

/// What all drains need now.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct DrainStep {
    /// Allocations to mark.
    pub marks: Vec<DrainMark>,
    /// Nodes that everything which had to has left.
    pub done: BTreeSet<NodeName>,
    /// For each node, how many allocations have to leave it still.
    pub remaining: BTreeMap<NodeName, i64>,
    /// When a deadline passes.
    pub wake_at: Option<Timestamp>,
}

/// How an allocation takes part in a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// A few at a time.
    Moves,
    /// It may end by itself until the deadline.
    Ends,
    /// When all others are gone.
    Last,
}

/// Decides what all drains need now. O(allocations of the jobs on these nodes).
pub fn step(view: &ClusterView, drains: &BTreeMap<NodeName, Leaving>, now: Timestamp) -> DrainStep {
    let forced = forced(drains, now);
    let mut step = DrainStep { wake_at: wake_at(drains, &forced), ..DrainStep::default() };
    let mut jobs: BTreeSet<&JobKey> = BTreeSet::new();
    for (name, drain) in drains {
        let there: Vec<&Arc<Alloc>> = view.allocs_on_node(name).filter(|alloc| !alloc.is_client_terminal()).collect();
        let n_first = there.iter().filter(|alloc| part(view, alloc) != Part::Last).count();
        step.remaining.insert(name.clone(), i64::try_from(n_first).unwrap_or(i64::MAX));
        let is_forced = forced.contains(name);
        let is_last_due = (n_first == 0 || is_forced) && !drain.ignores_system_jobs;
        let mut n_last = 0;
        for alloc in there {
            match part(view, alloc) {
                Part::Last if is_last_due && is_to_mark(alloc) => {
                    n_last += 1;
                    step.marks.push(mark(alloc, Part::Last));
                }
                Part::Moves | Part::Ends if is_forced && is_to_mark(alloc) => {
                    step.marks.push(mark(alloc, part(view, alloc)));
                }
                Part::Moves => drop(jobs.insert(&alloc.job)),
                Part::Ends | Part::Last => {}
            }
        }
        if n_first == 0 && n_last == 0 {
            step.done.insert(name.clone());
        }
    }
    for job in jobs {
        step.marks.extend(moves(view, job, drains, &forced));
    }
    step
}

/// The nodes on which nothing may stay.
fn forced(drains: &BTreeMap<NodeName, Leaving>, now: Timestamp) -> BTreeSet<NodeName> {
    let is_over = |drain: &Leaving| drain.force_deadline.is_some_and(|deadline| deadline <= now);
    let horizon = if drains.values().any(is_over) { now.saturating_add(TOGETHER).unwrap_or(now) } else { now };
    let is_forced = |drain: &Leaving| drain.is_forced || drain.force_deadline.is_some_and(|at| at <= horizon);
    drains.iter().filter(|(_, drain)| is_forced(drain)).map(|(name, _)| name.clone()).collect()
}

fn wake_at(drains: &BTreeMap<NodeName, Leaving>, forced: &BTreeSet<NodeName>) -> Option<Timestamp> {
    let open = drains.iter().filter(|(name, _)| !forced.contains(*name));
    open.filter_map(|(_, drain)| drain.force_deadline).min()
}

/// The next allocations of a service job that move, over all nodes that it leaves.
fn moves(
    view: &ClusterView,
    job: &JobKey,
    drains: &BTreeMap<NodeName, Leaving>,
    forced: &BTreeSet<NodeName>,
) -> Vec<DrainMark> {
    let mut groups: BTreeMap<&str, Vec<&Arc<Alloc>>> = BTreeMap::new();
    for alloc in view.allocs_of_job(job) {
        groups.entry(&alloc.group).or_default().push(alloc);
    }
    let known = view.job(job);
    let mut marks = Vec::new();
    for (name, allocs) in groups {
        let mut leaving: Vec<&Arc<Alloc>> = allocs
            .iter()
            .copied()
            .filter(|alloc| drains.contains_key(&alloc.node) && !forced.contains(&alloc.node) && is_to_mark(alloc))
            .collect();
        let is_well =
            |alloc: &&&Arc<Alloc>| !alloc.is_terminal() && alloc.health.is_some() && !alloc.transition.migrate;
        let healthy = allocs.iter().filter(is_well).filter(|alloc| !forced.contains(&alloc.node)).count();
        let healthy = i64::try_from(healthy).unwrap_or(i64::MAX);
        let may_leave = known.map_or(i64::MAX, |job| healthy - (count(job, name) - max_parallel(job, name)));
        leaving.sort_by_key(|alloc| (alloc.index, &alloc.key));
        let n = usize::try_from(may_leave.max(0)).unwrap_or(usize::MAX);
        marks.extend(leaving.into_iter().take(n).map(|alloc| mark(alloc, Part::Moves)));
    }
    marks
}

fn count(job: &Job, group: &str) -> i64 {
    job.counts.get(group).copied().unwrap_or(0)
}

fn max_parallel(job: &Job, group: &str) -> i64 {
    let given = job.definition.group(group).and_then(|group| group.migrate.as_ref());
    defaults::migrate(given).max_parallel.unwrap_or(1)
}

fn part(view: &ClusterView, alloc: &Alloc) -> Part {
    let Some(definition) = view.definition_of(alloc) else { return Part::Moves };
    let has_plugin =
        definition.group(&alloc.group).is_some_and(|group| group.tasks.iter().any(|task| task.csi_plugin.is_some()));
    match definition.job_type() {
        _ if has_plugin => Part::Last,
        JobType::Service => Part::Moves,
        JobType::Batch => Part::Ends,
        JobType::System | JobType::Sysbatch => Part::Last,
    }
}

/// Whether it is to leave and is not marked yet.
fn is_to_mark(alloc: &Alloc) -> bool {
    !alloc.is_terminal() && !alloc.transition.migrate
}

fn mark(alloc: &Arc<Alloc>, part: Part) -> DrainMark {
    let migrate_disable_placement = alloc.transition.migrate_disable_placement || part == Part::Ends;
    let transition = DesiredTransition { migrate: true, migrate_disable_placement, ..alloc.transition };
    DrainMark { alloc: Arc::clone(alloc), transition }
}

#[cfg(test)]
mod tests {
    use drover_api::allocation::ClientStatus;
    use serde_json::json;

    use super::*;
    use crate::scheduler::tests::{World, now, spec};

    const OPEN: Leaving = Leaving { force_deadline: None, is_forced: false, ignores_system_jobs: false };

    fn drained(nodes: &[(&str, Leaving)]) -> BTreeMap<NodeName, Leaving> {
        nodes.iter().map(|(name, leaving)| (NodeName::from(*name), *leaving)).collect()
    }

    /// Ten allocations of a service job, all on `n-0`.
    fn ten(max_parallel: i64) -> World {
        let mut spec = spec(10);
        spec["groups"][0]["migrate"] = json!({ "maxParallel": max_parallel });
        let mut world = World::new(&spec);
        world.allocs(0..10, |alloc| alloc.node = "n-0".into());
        world
    }

    fn marked(world: &World, leaving: Leaving) -> usize {
        step(&world.view, &drained(&[("n-0", leaving)]), now()).marks.len()
    }

    fn change(world: &mut World, index: i64, change: impl Fn(&mut Alloc)) {
        let mut alloc = (**world.view.allocs().find(|alloc| alloc.index == index).unwrap()).clone();
        change(&mut alloc);
        world.view.put_alloc(alloc);
    }

    #[test]
    fn s_165_as_many_leave_at_once_as_the_migrate_block_allows() {
        for (max_parallel, wanted) in [(1, 1), (2, 2), (10, 10)] {
            assert_eq!(marked(&ten(max_parallel), OPEN), wanted);
        }
    }

    #[test]
    fn s_166_nothing_more_leaves_while_one_is_on_its_way() {
        let mut world = ten(1);
        change(&mut world, 3, |alloc| alloc.transition.migrate = true);
        assert_eq!(marked(&world, OPEN), 0);
    }

    #[test]
    fn one_without_a_verdict_holds_the_others_back() {
        let mut world = ten(1);
        change(&mut world, 3, |alloc| alloc.health = None);
        assert_eq!(marked(&world, OPEN), 0);
    }

    #[test]
    fn two_nodes_share_one_limit() {
        let mut world = ten(2);
        for index in 0..5 {
            change(&mut world, index, |alloc| alloc.node = "n-1".into());
        }
        let drains = drained(&[("n-0", OPEN), ("n-1", OPEN)]);
        assert_eq!(step(&world.view, &drains, now()).marks.len(), 2);
    }

    #[test]
    fn s_167_batch_jobs_may_end_by_themselves_until_the_deadline() {
        let mut spec = spec(3);
        spec["type"] = json!("batch");
        spec["groups"][0].as_object_mut().unwrap().remove("update");
        let mut world = World::new(&spec);
        world.allocs(0..3, |alloc| alloc.node = "n-0".into());
        let at = |deadline| Leaving { force_deadline: Some(deadline), ..OPEN };
        let later = now() + SignedDuration::from_mins(1);
        assert_eq!(marked(&world, at(later)), 0);
        let open = step(&world.view, &drained(&[("n-0", at(later))]), now());
        assert_eq!((open.wake_at, open.remaining[&NodeName::from("n-0")]), (Some(later), 3));
        let over = step(&world.view, &drained(&[("n-0", at(now()))]), now());
        assert_eq!(over.marks.len(), 3);
        let is_final = |mark: &DrainMark| mark.transition.migrate && mark.transition.migrate_disable_placement;
        assert!(over.marks.iter().all(is_final));
    }

    #[test]
    fn deadlines_that_are_close_are_handled_together() {
        let mut world = ten(1);
        change(&mut world, 0, |alloc| alloc.node = "n-1".into());
        let in_seconds = |s| Leaving { force_deadline: Some(now() + SignedDuration::from_secs(s)), ..OPEN };
        let count = |late| step(&world.view, &drained(&[("n-0", in_seconds(0)), ("n-1", in_seconds(late))]), now());
        assert_eq!((count(5).marks.len(), count(5).wake_at), (10, None));
        assert_eq!(count(6).wake_at, Some(now() + SignedDuration::from_secs(6)));
    }

    #[test]
    fn s_168_system_jobs_leave_last_or_stay() {
        let mut spec = spec(1);
        spec["type"] = json!("system");
        let mut world = World::new(&spec);
        world.allocs(0..1, |_| {});
        let look = |world: &World, leaving| step(&world.view, &drained(&[("n-0", leaving)]), now());
        let first = look(&world, OPEN);
        assert_eq!((first.marks.len(), first.remaining[&NodeName::from("n-0")]), (1, 0));
        assert!(first.done.is_empty(), "its end is asked for before the drain is over");
        let ignored = look(&world, Leaving { ignores_system_jobs: true, ..OPEN });
        assert_eq!((ignored.marks.len(), ignored.done.len()), (0, 1));
        change(&mut world, 0, |alloc| alloc.transition.migrate = true);
        assert_eq!(look(&world, OPEN).done.len(), 1);
    }

    #[test]
    fn s_169_a_drain_is_done_when_all_that_had_to_leave_has_ended() {
        let mut world = ten(1);
        let done = |world: &World| step(&world.view, &drained(&[("n-0", OPEN)]), now()).done.len();
        for index in 0..10 {
            assert_eq!(done(&world), 0);
            change(&mut world, index, |alloc| alloc.client = ClientStatus::Complete);
        }
        assert_eq!(done(&world), 1);
    }

    #[test]
    fn a_deadline_of_0_never_passes_and_none_is_an_hour() {
        let drain = |text: serde_json::Value| Leaving::begun(&serde_json::from_value(text).unwrap(), now());
        assert_eq!(drain(json!({ "deadline": "0s" })).force_deadline, None);
        assert_eq!(drain(json!({})).force_deadline, Some(now() + SignedDuration::from_hours(1)));
        assert!(drain(json!({ "force": true })).is_forced);
    }
}
