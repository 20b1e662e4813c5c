//! How many allocations share each value of a job's distinct properties (`spec/scheduler.md` 4.4), for jobs that are
//! placed node by node.

use std::collections::BTreeMap;

use crate::model::{Job, Node};
use crate::scheduler::feasible::{self, DistinctProperty};
use crate::scheduler::plan::Placement;
use crate::scheduler::proposed::Proposed;
use crate::snapshot::ClusterView;
use drover_api::group::Group;

/// The limits of a group, each with the allocations on every value.
#[derive(Debug)]
pub(super) struct PropertyCounts<'a> {
    limits: Vec<(DistinctProperty<'a>, BTreeMap<&'a str, i64>)>,
}

impl<'a> PropertyCounts<'a> {
    /// Counts what stays and what is placed already. O(allocations of the job), where it has such limits.
    pub(super) fn new(job: &'a Job, group: &'a Group, proposed: &Proposed<'a>, placements: &[Placement]) -> Self {
        let view = proposed.view();
        let limits = feasible::distinct_properties(&job.definition, group);
        let mut counts = Self { limits: limits.into_iter().map(|limit| (limit, BTreeMap::new())).collect() };
        if counts.limits.is_empty() {
            return counts;
        }
        for alloc in view.allocs_of_job(&job.key).filter(|alloc| proposed.stays(alloc)) {
            counts.add(view, &alloc.node, alloc.group == group.name, 1);
        }
        for placement in placements {
            counts.add(view, &placement.node, *placement.group == *group.name, 1);
        }
        counts
    }

    /// Counts allocations on a node, of the group or of another one of the job.
    pub(super) fn add(&mut self, view: &'a ClusterView, node: &crate::ids::NodeName, is_of_group: bool, n: i64) {
        let Some(node) = view.node(node) else { return };
        for (limit, used) in self.limits.iter_mut().filter(|(limit, _)| is_of_group || limit.of_job) {
            if let Some(value) = feasible::resolve(limit.target, node) {
                *used.entry(value).or_default() += n;
            }
        }
    }

    /// The key of the first limit that one more allocation on a node would break.
    pub(super) fn first_failure(&self, node: &Node) -> Option<String> {
        self.limits.iter().find_map(|(limit, used)| {
            let target = limit.target;
            match feasible::resolve(target, node) {
                None => Some(format!("distinctProperty:{target}=")),
                Some(value) if used.get(value).copied().unwrap_or(0) >= limit.limit => {
                    Some(format!("distinctProperty:{target}={value}"))
                }
                Some(_) => None,
            }
        })
    }
}
