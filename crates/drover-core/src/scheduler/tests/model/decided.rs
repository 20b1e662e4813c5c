//! What was decided, by the scheduler or by the reading of its specification, in a form that can be compared.

use std::collections::BTreeMap;

use drover_api::allocation::ClientStatus;

use super::super::now;
use crate::scheduler::plan::{DesiredUpdates, Plan};

/// How often each rule was met.
#[derive(Debug, Default)]
pub(super) struct Hits(pub(super) BTreeMap<&'static str, u64>);

impl Hits {
    /// Notes that a rule was met.
    pub(super) fn met(&mut self, rule: &'static str) {
        *self.0.entry(rule).or_default() += 1;
    }

    /// Notes it where it was.
    pub(super) fn met_if(&mut self, holds: bool, rule: &'static str) -> bool {
        if holds {
            self.met(rule);
        }
        holds
    }
}

/// An allocation that is made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Made {
    pub(super) index: i64,
    pub(super) canary: bool,
    pub(super) version: i64,
    /// The one that ends for it in the same step.
    pub(super) replaces: Option<String>,
    /// Where, for jobs that run on each node.
    pub(super) node: Option<String>,
}

/// One that ends: its name, why, and whether it is marked lost.
pub(super) type Ended = (String, String, bool);

/// All that is compared. Times are seconds from now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Decided {
    pub(super) ended: Vec<Ended>,
    pub(super) made: Vec<Made>,
    pub(super) in_place: Vec<String>,
    pub(super) disconnected: Vec<(String, Option<i64>)>,
    pub(super) reconnected: Vec<String>,
    pub(super) noted: Vec<(String, Option<i64>)>,
    pub(super) follow_ups: Vec<i64>,
    /// What the group enters a deployment with: how many it wants, and canaries.
    pub(super) begun: Option<(i64, i64)>,
    pub(super) deployments_ended: Vec<String>,
    pub(super) desired: DesiredUpdates,
}

impl Decided {
    /// The same with every list in order.
    pub(super) fn sorted(mut self) -> Self {
        self.ended.sort();
        self.made.sort();
        self.in_place.sort();
        self.disconnected.sort();
        self.reconnected.sort();
        self.noted.sort();
        self.follow_ups.sort_unstable();
        self
    }

    /// What differs, field by field.
    pub(super) fn difference(&self, tables: &Self) -> String {
        let fields = |one: &Self| {
            [
                ("ends", format!("{:?}", one.ended)),
                ("makes", format!("{:?}", one.made)),
                ("in place", format!("{:?}", one.in_place)),
                ("disconnects", format!("{:?}", one.disconnected)),
                ("reconnects", format!("{:?}", one.reconnected)),
                ("notes", format!("{:?}", one.noted)),
                ("follow-ups", format!("{:?}", one.follow_ups)),
                ("begins", format!("{:?}", one.begun)),
                ("deployments", format!("{:?}", one.deployments_ended)),
                ("counts", format!("{:?}", one.desired)),
            ]
        };
        let pairs = fields(self).into_iter().zip(fields(tables)).filter(|(plan, tables)| plan != tables);
        let lines = pairs.map(|((field, plan), (_, tables))| format!("{field}:\n  plan   {plan}\n  tables {tables}"));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// What a plan decided. `has_nodes` says whether nodes are compared.
    pub(super) fn of(plan: &Plan, has_nodes: bool) -> Self {
        let name = |alloc: &crate::model::Alloc| alloc.key.name.to_string();
        let seconds = |at: jiff::Timestamp| at.duration_since(now()).as_secs();
        let stops = plan.stops.iter().chain(plan.replaced());
        Self {
            ended: stops
                .map(|stop| (name(&stop.alloc), stop.reason.to_string(), stop.client == Some(ClientStatus::Lost)))
                .collect(),
            made: plan
                .placements
                .iter()
                .map(|one| Made {
                    index: one.index,
                    canary: one.canary,
                    version: one.job_version,
                    replaces: one.replaces.as_ref().map(|stop| name(&stop.alloc)),
                    node: has_nodes.then(|| one.node.to_string()),
                })
                .collect(),
            in_place: plan.in_place.iter().map(|one| name(&one.alloc)).collect(),
            disconnected: plan
                .disconnects
                .iter()
                .map(|cut| (name(&cut.alloc), cut.follow_up.as_ref().map(|later| seconds(later.at))))
                .collect(),
            reconnected: plan.reconnects.iter().map(|alloc| name(alloc)).collect(),
            noted: plan
                .attributes
                .iter()
                .map(|note| (note.alloc.name.to_string(), note.follow_up.as_ref().map(|later| seconds(later.at))))
                .collect(),
            follow_ups: plan.follow_ups.iter().map(|later| seconds(later.at)).collect(),
            begun: plan
                .deployment
                .as_ref()
                .and_then(|begun| begun.groups.get("web"))
                .map(|state| (state.desired_total, state.desired_canaries)),
            deployments_ended: plan
                .deployment_updates
                .iter()
                .map(|update| format!("{} {}", update.phase, update.description))
                .collect(),
            desired: plan.desired.get("web").copied().unwrap_or_default(),
        }
        .sorted()
    }
}
