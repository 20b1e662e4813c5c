//! Which jobs wait for room, and which of them a change of the cluster may help (`spec/scheduler.md` 2.5).
//!
//! Input: what a plan could not place and why, and what became free since. Output: the jobs to evaluate again. Nothing
//! here polls: a job that no change concerns is not looked at. Must never know how much is free.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::ids::{JobKey, NodeName};
use crate::scheduler::plan::WaitsFor;

/// How long it is remembered what became free.
const REMEMBERED: Duration = Duration::from_mins(15);

/// What became free, or there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Freed {
    /// Room on a node of this class.
    Class(String),
    /// Room on this node, for the jobs that have one allocation on each.
    Node(NodeName),
    /// A volume, as `csi-volume:<namespace>:<id>`.
    Volume(String),
}

/// What becomes of a job that found no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockedVerdict {
    /// It waits; where it waited already, the older wait is over.
    Waits,
    /// What it waits for became free while it was planned: it is evaluated again at once.
    Again,
    /// A newer picture of it waits already.
    Duplicate,
}

/// The jobs that wait for room.
#[derive(Clone, Debug, Default)]
pub struct BlockedJobs {
    waiting: BTreeMap<JobKey, BlockedJob>,
    /// What became free last, by what it was: the index of the write, and when.
    freed: BTreeMap<Freed, (u64, Timestamp)>,
    /// The same, by the index: what is forgotten, and what a plan has missed, are found without looking at the rest.
    in_order: BTreeSet<(u64, Freed)>,
}

#[derive(Clone, Debug)]
struct BlockedJob {
    waits: WaitsFor,
    /// Up to where its plan saw.
    snapshot: u64,
}

impl BlockedJobs {
    /// A job's plan, made on this snapshot, left something without a place.
    pub fn block(&mut self, job: &JobKey, waits: WaitsFor, snapshot: u64) -> BlockedVerdict {
        if self.waiting.get(job).is_some_and(|known| known.snapshot > snapshot) {
            return BlockedVerdict::Duplicate;
        }
        let first_missed = (snapshot.saturating_add(1), Freed::Class(String::new()));
        let is_missed = self.in_order.range(first_missed..).any(|(_, what)| waits.is_helped_by(what));
        if is_missed {
            self.waiting.remove(job);
            return BlockedVerdict::Again;
        }
        self.waiting.insert(job.clone(), BlockedJob { waits, snapshot });
        BlockedVerdict::Waits
    }

    /// A job waits for nothing any more: all of it is placed, or it is stopped or gone.
    pub fn untrack(&mut self, job: &JobKey) {
        self.waiting.remove(job);
    }

    /// Something became free with the write of this index: the jobs that it may help. They are not tracked until they
    /// block again. O(waiting jobs).
    pub fn free(&mut self, what: Freed, index: u64, now: Timestamp) -> Vec<JobKey> {
        let helped: Vec<JobKey> = self
            .waiting
            .iter()
            .filter(|(_, known)| known.waits.is_helped_by(&what))
            .map(|(job, _)| job.clone())
            .collect();
        for job in &helped {
            self.waiting.remove(job);
        }
        let oldest = now.saturating_sub(SignedDuration::try_from(REMEMBERED).unwrap_or_default()).unwrap_or(now);
        while let Some(first) = self.in_order.first() {
            if self.freed.get(&first.1).is_some_and(|(_, at)| *at >= oldest) {
                break;
            }
            if let Some((_, forgotten)) = self.in_order.pop_first() {
                self.freed.remove(&forgotten);
            }
        }
        if let Some((before, _)) = self.freed.insert(what.clone(), (index, now)) {
            self.in_order.remove(&(before, what.clone()));
        }
        self.in_order.insert((index, what));
        helped
    }

    /// Every job that waits: something changed that concerns them all.
    pub fn free_all(&mut self) -> Vec<JobKey> {
        std::mem::take(&mut self.waiting).into_keys().collect()
    }

    /// How many jobs wait.
    pub fn n_waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether a job waits.
    pub fn is_waiting(&self, job: &JobKey) -> bool {
        self.waiting.contains_key(job)
    }
}

impl WaitsFor {
    /// Whether something that became free may be what is waited for. A class that was never looked at may be.
    pub fn is_helped_by(&self, what: &Freed) -> bool {
        match what {
            Freed::Class(class) => self.is_escaped || self.classes.get(class).copied().unwrap_or(true),
            Freed::Node(node) => self.nodes.contains(node),
            Freed::Volume(volume) => self.missing.contains(volume),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> JobKey {
        JobKey::new("default", "web")
    }

    fn at(minute: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minute)
    }

    fn classes(classes: &[(&str, bool)]) -> WaitsFor {
        let classes = classes.iter().map(|(class, may)| ((*class).to_owned(), *may)).collect();
        WaitsFor { classes, ..WaitsFor::default() }
    }

    /// How many jobs are evaluated when this becomes free, while one waits for that.
    fn woken(waits: WaitsFor, what: Freed) -> usize {
        let mut blocked = BlockedJobs::default();
        assert_eq!(blocked.block(&job(), waits, 1), BlockedVerdict::Waits);
        let woken = blocked.free(what, 2, at(0)).len();
        assert_eq!(blocked.is_waiting(&job()), woken == 0);
        woken
    }

    #[test]
    fn s_145_a_class_that_was_ruled_out_helps_nobody() {
        for (class, wanted) in [("A", 1), ("B", 0), ("C", 1)] {
            assert_eq!(woken(classes(&[("A", true), ("B", false)]), Freed::Class(class.into())), wanted, "{class}");
        }
    }

    #[test]
    fn s_146_every_class_helps_one_that_depends_on_single_nodes() {
        let escaped = WaitsFor { is_escaped: true, ..classes(&[("A", false)]) };
        assert_eq!(woken(escaped, Freed::Class("A".into())), 1);
    }

    #[test]
    fn s_147_a_newer_wait_takes_the_place_of_an_older_one() {
        let mut blocked = BlockedJobs::default();
        assert_eq!(blocked.block(&job(), classes(&[("A", false)]), 10), BlockedVerdict::Waits);
        assert_eq!(blocked.block(&job(), classes(&[("A", true)]), 11), BlockedVerdict::Waits);
        assert_eq!(blocked.block(&job(), classes(&[("A", false)]), 10), BlockedVerdict::Duplicate);
        assert_eq!(blocked.free(Freed::Class("A".into()), 12, at(0)), [job()]);
        assert_eq!(blocked.free(Freed::Class("C".into()), 13, at(0)), []);
    }

    #[test]
    fn s_148_what_became_free_while_the_plan_was_made_counts() {
        let blocked_at = |snapshot, may| {
            let mut blocked = BlockedJobs::default();
            assert_eq!(blocked.free(Freed::Class("A".into()), 1000, at(0)), []);
            blocked.block(&job(), classes(&[("A", may)]), snapshot)
        };
        assert_eq!(blocked_at(900, true), BlockedVerdict::Again);
        assert_eq!(blocked_at(1001, true), BlockedVerdict::Waits);
        assert_eq!(blocked_at(900, false), BlockedVerdict::Waits);
    }

    #[test]
    fn what_became_free_is_forgotten_after_a_quarter_of_an_hour() {
        let mut blocked = BlockedJobs::default();
        blocked.free(Freed::Class("A".into()), 1000, at(0));
        blocked.free(Freed::Class("B".into()), 1001, at(16));
        assert_eq!(blocked.block(&job(), classes(&[("A", true), ("B", false)]), 900), BlockedVerdict::Waits);
        // What became free again is as young as the last time.
        blocked.free(Freed::Class("C".into()), 1002, at(20));
        blocked.free(Freed::Class("B".into()), 1003, at(30));
        blocked.free(Freed::Class("A".into()), 1004, at(36));
        let known: Vec<&Freed> = blocked.freed.keys().collect();
        assert_eq!(known, [&Freed::Class("A".into()), &Freed::Class("B".into())]);
        assert_eq!(blocked.in_order.len(), 2);
        assert_eq!(blocked.block(&job(), classes(&[("A", false), ("B", true)]), 1002), BlockedVerdict::Again);
        assert_eq!(blocked.block(&job(), classes(&[("A", false), ("B", true)]), 1003), BlockedVerdict::Waits);
    }

    #[test]
    fn s_149_only_the_volume_that_is_missing_helps() {
        for (volume, wanted) in [("csi-volume:default:v1", 1), ("csi-volume:default:v2", 0)] {
            let missing = ["csi-volume:default:v1".to_owned()].into();
            let waits = WaitsFor { missing, is_escaped: true, ..WaitsFor::default() };
            assert_eq!(woken(waits, Freed::Volume(volume.into())), wanted, "{volume}");
        }
    }

    #[test]
    fn a_system_job_waits_for_its_full_nodes() {
        let full = WaitsFor { nodes: ["n-1".into()].into(), ..WaitsFor::default() };
        assert_eq!(woken(full.clone(), Freed::Node("n-1".into())), 1);
        assert_eq!(woken(full, Freed::Node("n-2".into())), 0);
    }

    #[test]
    fn a_second_plan_on_the_same_snapshot_waits_for_what_it_says() {
        let mut blocked = BlockedJobs::default();
        assert_eq!(blocked.block(&job(), classes(&[("A", false)]), 10), BlockedVerdict::Waits);
        assert_eq!(blocked.block(&job(), classes(&[("A", true)]), 10), BlockedVerdict::Waits);
        assert_eq!(blocked.free(Freed::Class("A".into()), 11, at(0)), [job()]);
    }

    #[test]
    fn a_job_that_is_tracked_no_more_is_not_woken() {
        let mut blocked = BlockedJobs::default();
        let other = JobKey::new("default", "other");
        for (job, n) in [(&job(), 1), (&other, 2)] {
            blocked.block(job, classes(&[("A", true)]), 1);
            assert_eq!(blocked.n_waiting(), n);
        }
        blocked.untrack(&job());
        assert_eq!((blocked.n_waiting(), blocked.is_waiting(&job())), (1, false));
        assert_eq!(blocked.free(Freed::Class("A".into()), 2, at(0)), [other]);
        assert_eq!(blocked.n_waiting(), 0);
    }

    #[test]
    fn a_change_that_concerns_all_wakes_all_and_each_once() {
        let mut blocked = BlockedJobs::default();
        let other = JobKey::new("default", "other");
        blocked.block(&job(), classes(&[("A", false)]), 1);
        blocked.block(&other, WaitsFor { nodes: ["n-1".into()].into(), ..WaitsFor::default() }, 1);
        assert_eq!(blocked.free_all(), [other, job()]);
        assert_eq!((blocked.free_all(), blocked.n_waiting()), (Vec::new(), 0));
    }
}
