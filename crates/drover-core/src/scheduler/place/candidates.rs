//! Every node that a group could be placed on, with what stands in its way or how well it suits, kept up to date while
//! a plan grows. Exact: each feasible node is scored, and placing one more costs what changed, not the number of nodes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use drover_api::client_node::NodePhase;
use drover_api::group::Group;
use drover_api::metric::{AllocMetric, Nearest, ResourcesExhausted};

use super::fit::Need;
use super::node_table::NodeTable;
use super::score_index::{Row, ScoreGroup, ScoreIndex};
use super::spread::{self, Spread};
use crate::arithmetic::ratio;
use crate::definition::Definition;
use crate::ids::{JobKey, NodeName};
use crate::model::{Alloc, Amounts, Node};
use crate::scheduler::class::{self, ByShape};
use crate::scheduler::feasible::{self, Checks, DistinctProperty, WantedGroup, resolve};
use crate::scheduler::plan::{Metrics, Scores, WaitsFor};
use crate::scheduler::proposed::Proposed;
use crate::settings::Algorithm;
use crate::snapshot::{ClusterView, NodeEntry};
use crate::usage::Usage;

/// The score of a node on which the allocation failed before.
pub(super) const PENALTY: f64 = -1.0;
/// Best nodes that are kept in the metrics.
const KEPT_SCORES: usize = 5;

/// What is to be placed.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacementAsk<'a> {
    pub(super) wanted: WantedGroup<'a>,
    pub(super) algorithm: Algorithm,
    /// How many allocations of the group are wanted.
    pub(super) count: i64,
}

/// Where a node stands. Reasons are numbers of the tally.
#[derive(Clone, Copy, Debug, PartialEq)]
enum CandidateState {
    /// It is in another pool or datacenter.
    Outside,
    Filtered(u32),
    Exhausted(u32),
    Open(Own),
}

/// The scores of a node that depend on it alone. Small, because there is one for each node.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Own {
    binpack: f64,
    anti_affinity: Option<f64>,
    affinity: Option<f64>,
    devices: Option<f64>,
}

impl Own {
    fn scores(self) -> Scores {
        let Self { binpack, anti_affinity, affinity, devices } = self;
        Scores { binpack, devices, anti_affinity, affinity, ..Scores::default() }
    }
}

/// What nodes of a shape share besides the answers to the rules.
#[derive(Clone, Copy, Debug)]
struct Place {
    is_in_pool: bool,
    is_covered: bool,
    /// The combination of the spreads' values, where no spread looks at one node alone.
    tuple: u32,
    datacenter: u32,
}

#[derive(Debug)]
pub(super) struct Candidates<'a> {
    ask: PlacementAsk<'a>,
    table: Arc<NodeTable<'a>>,
    need: Need<'a>,
    checks: Checks<'a>,
    /// The slot of the job for whose volumes the answers hold.
    index: i64,
    states: Vec<CandidateState>,
    by_score: ScoreIndex,
    tally: NodeTally,
    spreads: Vec<Spread<'a>>,
    /// For each combination of the spreads' values: their numbers.
    tuples: Vec<Vec<Option<usize>>>,
    tuple_of: Vec<u32>,
    /// The spreads' part of the score, by combination.
    spread_scores: Vec<f64>,
    lowest_boost: f64,
    distinct_hosts: (bool, bool),
    distinct: Vec<Distinct<'a>>,
}

/// A limit on allocations that share a value, with what is in use.
#[derive(Debug)]
struct Distinct<'a> {
    rule: DistinctProperty<'a>,
    used: HashMap<String, Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    there: i64,
    placed: i64,
    cleared: i64,
    rows: Vec<Row>,
}

impl Counted {
    /// Allocations on the value: a value that was cleared more than once and is used again has one clearance discounted
    /// (`spec/scheduler.md` 4.4).
    fn used(&self) -> i64 {
        let cleared = if self.cleared > 1 && self.placed > 0 { self.cleared - 1 } else { self.cleared };
        self.there + self.placed - cleared
    }
}

/// How the counts of a value change.
#[derive(Clone, Copy, Debug)]
pub(super) enum CountChange {
    Placed,
    Ended,
    Kept,
}

impl<'a> Candidates<'a> {
    /// Looks at every node. O(nodes).
    pub(super) fn new(
        ask: PlacementAsk<'a>,
        table: Arc<NodeTable<'a>>,
        proposed: &Proposed<'a>,
        index: i64,
        need: Need<'a>,
    ) -> Self {
        let WantedGroup { definition, group, .. } = ask.wanted;
        let n = table.len();
        let rules = feasible::distinct_properties(definition, group);
        let mut candidates = Self {
            ask,
            need,
            checks: Checks::new(ask.wanted),
            index,
            states: vec![CandidateState::Outside; n],
            by_score: ScoreIndex::default(),
            tally: NodeTally::new(&definition.spec.node_pool),
            spreads: spread::spreads(definition, group, ask.count),
            tuples: Vec::new(),
            tuple_of: vec![0; n],
            spread_scores: Vec::new(),
            lowest_boost: Spread::without_value(),
            distinct_hosts: feasible::distinct_hosts(definition, group),
            distinct: rules.into_iter().map(|rule| Distinct { rule, used: HashMap::new() }).collect(),
            table,
        };
        candidates.count_what_is_there(proposed);
        candidates.look_at_all(proposed);
        candidates.weigh_spreads();
        candidates
    }

    /// The first look at every node.
    fn look_at_all(&mut self, proposed: &Proposed<'a>) {
        let mut open = Vec::with_capacity(self.table.len());
        let mut places: ByShape<Place> = ByShape::default();
        let mut numbers = HashMap::new();
        let looks_at_each = self.spreads.iter().any(|spread| class::escapes(spread.attribute));
        for row in self.table.rows() {
            let entry = self.table.entry(row);
            let mut place = match places.get(&entry.shape) {
                Some(known) => *known,
                None => *places.entry(entry.shape).or_insert(self.place_of(&entry.node, &mut numbers)),
            };
            if !place.is_in_pool {
                continue;
            }
            self.tally.available(place.datacenter);
            if !place.is_covered {
                continue;
            }
            if looks_at_each {
                place.tuple = self.tuple_of(&entry.node, &mut numbers);
            }
            self.tuple_of[row as usize] = place.tuple;
            self.tally.evaluated();
            let state = self.look(row, proposed);
            if let CandidateState::Open(own) = state {
                let (key, sum) = self.score_group_of(row, own);
                open.push((row, self.table.rank(row), key, sum));
            }
            self.states[row as usize] = state;
            self.tally.enter(state, entry);
        }
        self.by_score = ScoreIndex::fill(self.table.len(), open.into_iter());
    }

    fn place_of(&mut self, node: &Node, numbers: &mut HashMap<Vec<Option<usize>>, u32>) -> Place {
        Place {
            is_in_pool: feasible::is_in_pool(node, self.ask.wanted.definition),
            is_covered: feasible::is_covered(node, self.ask.wanted.definition),
            tuple: self.tuple_of(node, numbers),
            datacenter: self.tally.datacenter(&node.datacenter),
        }
    }

    /// The number of the combination of the spreads' values that a node has.
    fn tuple_of(&mut self, node: &Node, numbers: &mut HashMap<Vec<Option<usize>>, u32>) -> u32 {
        let spreads = self.spreads.iter_mut();
        let tuple: Vec<Option<usize>> =
            spreads.map(|spread| resolve(spread.attribute, node).map(|value| spread.value(value))).collect();
        let next = u32::try_from(self.tuples.len()).unwrap_or(u32::MAX);
        if let Some(known) = numbers.get(&tuple) {
            return *known;
        }
        self.tuples.push(tuple.clone());
        numbers.insert(tuple, next);
        next
    }

    pub(super) fn group(&self) -> &'a Group {
        self.ask.wanted.group
    }

    pub(super) fn need(&self) -> &Need<'a> {
        &self.need
    }

    pub(super) fn row_of(&self, node: &NodeName) -> Option<Row> {
        self.table.row_of(node)
    }

    pub(super) fn entry(&self, row: Row) -> &'a NodeEntry {
        self.table.entry(row)
    }

    /// The place of a node among equals.
    pub(super) fn rank(&self, row: Row) -> u32 {
        self.table.rank(row)
    }

    /// Counts allocations of the job on the values of spreads and distinct properties, wherever their nodes are.
    fn count_what_is_there(&mut self, proposed: &Proposed<'a>) {
        let (view, group) = (proposed.view(), &self.ask.wanted.group.name);
        if self.spreads.is_empty() && self.distinct.is_empty() {
            return;
        }
        for (name, groups) in proposed.own() {
            let Some(node) = view.node(name) else { continue };
            let of_group = groups.get(group.as_str()).copied().unwrap_or(0);
            let of_job: i64 = groups.values().sum();
            for spread in &mut self.spreads {
                if let Some(value) = resolve(spread.attribute, node).filter(|_| of_group > 0) {
                    let number = spread.value(value);
                    spread.add(number, of_group);
                }
            }
            for distinct in &mut self.distinct {
                if let Some(value) = resolve(distinct.rule.target, node) {
                    let n = if distinct.rule.of_job { of_job } else { of_group };
                    distinct.used.entry(value.to_owned()).or_default().there += n;
                }
            }
        }
        for row in self.table.rows() {
            for distinct in &mut self.distinct {
                if let Some(value) = resolve(distinct.rule.target, &self.table.entry(row).node) {
                    match distinct.used.get_mut(value) {
                        Some(counted) => counted.rows.push(row),
                        None => {
                            distinct.used.insert(value.to_owned(), Counted { rows: vec![row], ..Counted::default() });
                        }
                    }
                }
            }
        }
    }

    /// Scores the spreads again. O(values + combinations).
    fn weigh_spreads(&mut self) {
        let lowest = &mut self.lowest_boost;
        let scores: Vec<Vec<f64>> = self.spreads.iter().map(|spread| spread.scores(lowest)).collect();
        let sum = |tuple: &Vec<Option<usize>>| -> f64 {
            let parts = tuple.iter().zip(&scores);
            parts.map(|(value, scores)| value.map_or(Spread::without_value(), |value| scores[value])).sum()
        };
        self.spread_scores = self.tuples.iter().map(sum).collect();
    }

    /// Looks at one covered node.
    fn look(&mut self, row: Row, proposed: &Proposed<'a>) -> CandidateState {
        let entry = self.table.entry(row);
        if let Some(rule) = self.checks.first_failure(entry, proposed, self.index) {
            return CandidateState::Filtered(self.tally.reason(&rule));
        }
        if let Some(rule) = self.broken_distinctness(entry, proposed) {
            return CandidateState::Filtered(self.tally.reason(&rule));
        }
        let usage = proposed.usage(entry);
        match self.need.check(entry, usage) {
            Ok(devices) => CandidateState::Open(self.score(row, usage, devices, proposed)),
            Err(dimension) => CandidateState::Exhausted(self.tally.reason(&dimension)),
        }
    }

    fn broken_distinctness(&self, entry: &NodeEntry, proposed: &Proposed<'a>) -> Option<String> {
        if self.distinct_hosts != (false, false) {
            let (of_group, of_job) = proposed.own_on(entry, &self.group().name);
            if (self.distinct_hosts.0 && of_job > 0) || (self.distinct_hosts.1 && of_group > 0) {
                return Some("distinctHosts".to_owned());
            }
        }
        self.distinct.iter().find_map(|distinct| {
            let target = distinct.rule.target;
            match resolve(target, &entry.node) {
                None => Some(format!("distinctProperty:{target}=")),
                Some(value) if distinct.used.get(value).map_or(0, Counted::used) >= distinct.rule.limit => {
                    Some(format!("distinctProperty:{target}={value}"))
                }
                Some(_) => None,
            }
        })
    }

    /// The scores of a node that depend on it alone.
    fn score(&mut self, row: Row, usage: &Usage, devices: Option<f64>, proposed: &Proposed<'a>) -> Own {
        let entry = self.table.entry(row);
        let need = self.need.amounts(entry);
        let beside = proposed.own_on(entry, &self.group().name).0;
        Own {
            binpack: fullness(self.ask.algorithm, entry.allocatable, usage.amounts.plus(need)),
            devices,
            anti_affinity: (beside > 0).then(|| -ratio(beside + 1, self.ask.count.max(1))),
            affinity: self.checks.affinity(entry),
        }
    }

    fn score_group_of(&self, row: Row, own: Own) -> (ScoreGroup, f64) {
        let (sum, n) = own.scores().sum();
        ((self.tuple_of[row as usize], n), sum)
    }

    /// Looks at a node again, because something on it changed.
    fn refresh(&mut self, row: Row, proposed: &Proposed<'a>) {
        let before = self.states[row as usize];
        if before == CandidateState::Outside {
            return;
        }
        let state = self.look(row, proposed);
        let entry = self.table.entry(row);
        self.tally.leave(before, entry);
        self.tally.enter(state, entry);
        let place = match state {
            CandidateState::Open(own) => Some(self.score_group_of(row, own)),
            _ => None,
        };
        self.by_score.set(row, self.table.rank(row), place);
        self.states[row as usize] = state;
    }

    /// Takes a change of an allocation in: of this group, or of another one on a node, which is in the table at `row`
    /// if it is.
    pub(super) fn changed(
        &mut self,
        row: Option<Row>,
        node: &NodeName,
        own: Option<(&str, CountChange)>,
        proposed: &Proposed<'a>,
    ) {
        let mut again: Vec<Row> = row.into_iter().collect();
        if !self.spreads.is_empty() || !self.distinct.is_empty() {
            if let (Some((group, change)), Some(node)) = (own, proposed.view().node(node)) {
                self.recount(node, group, change, &mut again);
            }
            again.sort_unstable();
            again.dedup();
        }
        for row in again {
            self.refresh(row, proposed);
        }
    }

    fn recount(&mut self, node: &Node, group: &str, change: CountChange, again: &mut Vec<Row>) {
        let is_of_group = group == self.group().name;
        if is_of_group && !self.spreads.is_empty() {
            let by = if matches!(change, CountChange::Ended) { -1 } else { 1 };
            for spread in &mut self.spreads {
                if let Some(value) = resolve(spread.attribute, node) {
                    let number = spread.value(value);
                    spread.add(number, by);
                }
            }
            self.weigh_spreads();
        }
        for distinct in &mut self.distinct {
            let Some(value) = resolve(distinct.rule.target, node).filter(|_| is_of_group || distinct.rule.of_job)
            else {
                continue;
            };
            let counted = distinct.used.entry(value.to_owned()).or_default();
            let before = counted.used() >= distinct.rule.limit;
            match change {
                CountChange::Placed => counted.placed += 1,
                CountChange::Ended => counted.cleared += 1,
                CountChange::Kept => counted.cleared -= 1,
            }
            if before != (counted.used() >= distinct.rule.limit) {
                again.extend(&counted.rows);
            }
        }
    }

    /// Makes the answers hold for the volumes of another slot. O(nodes) where the group has any.
    pub(super) fn turn_to(&mut self, index: i64, proposed: &Proposed<'a>) {
        if self.checks.depends_on_slot() && index != self.index {
            self.index = index;
            for row in self.table.rows() {
                self.refresh(row, proposed);
            }
        }
    }

    /// The scores of an open node, complete.
    fn complete(&self, row: Row, is_penalised: bool) -> Option<Scores> {
        let CandidateState::Open(own) = self.states[row as usize] else { return None };
        let spread = self.spread_scores[self.tuple_of[row as usize] as usize];
        let spread = (!self.spreads.is_empty() && spread != 0.0).then_some(spread);
        Some(Scores { spread, penalty: is_penalised.then_some(PENALTY), ..own.scores() })
    }

    /// The best nodes, best first. Nodes on which the allocation failed before are penalised.
    pub(super) fn best(&mut self, penalty: &[NodeName]) -> Option<(Row, Metrics)> {
        let penalised: Vec<Row> = penalty.iter().filter_map(|name| self.table.row_of(name)).collect();
        let total = |(tuple, n): ScoreGroup, sum: f64| {
            let spread = self.spread_scores[tuple as usize];
            let n = f64::from(n);
            if spread == 0.0 { sum / n } else { (sum + spread) / (n + 1.0) }
        };
        let mut best: Vec<(f64, u32, Row, Scores)> = self
            .by_score
            .best(KEPT_SCORES, &penalised, total)
            .into_iter()
            .filter_map(|(score, rank, row)| Some((score, rank, row, self.complete(row, false)?)))
            .collect();
        for row in penalised {
            if let Some(scores) = self.complete(row, true) {
                best.push((scores.normalised(), self.table.rank(row), row, scores));
            }
        }
        best.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        best.truncate(KEPT_SCORES);
        let named = |(_, _, row, scores): (f64, u32, Row, Scores)| (self.table.entry(row).node.name.clone(), scores);
        let row = best.first()?.2;
        Some((row, Metrics { best: best.into_iter().map(named).collect(), counts: self.tally.counts() }))
    }

    /// One node alone, if it is open.
    pub(super) fn only(&mut self, node: &NodeName, is_penalised: bool) -> Option<(Row, Metrics)> {
        let row = self.table.row_of(node)?;
        let scores = self.complete(row, is_penalised)?;
        Some((row, Metrics { best: vec![(node.clone(), scores)], counts: self.tally.counts() }))
    }

    /// Whether the score of every node depends on what is placed on others.
    pub(super) fn has_spreads(&self) -> bool {
        !self.spreads.is_empty()
    }

    /// Whether a node lacks nothing but room.
    pub(super) fn is_exhausted(&self, row: Row) -> bool {
        matches!(self.states[row as usize], CandidateState::Exhausted(_))
    }

    /// Nodes that lack nothing but room.
    pub(super) fn exhausted(&self) -> impl Iterator<Item = Row> + '_ {
        self.table.rows().filter(|row| self.is_exhausted(*row))
    }

    /// The scores of a node without room on which others are evicted, `used` being what counts as in use.
    pub(super) fn score_without_room(
        &mut self,
        row: Row,
        used: &Usage,
        preemption: f64,
        proposed: &Proposed<'a>,
    ) -> Scores {
        let mut scores = self.score(row, used, None, proposed).scores();
        let spread = self.spread_scores[self.tuple_of[row as usize] as usize];
        scores.spread = (!self.spreads.is_empty() && spread != 0.0).then_some(spread);
        scores.preemption = Some(preemption);
        scores
    }

    /// The counts of nodes.
    pub(super) fn counts(&mut self) -> Arc<AllocMetric> {
        self.tally.counts()
    }

    /// Why one more allocation found no place.
    pub(super) fn failure(&mut self, proposed: &Proposed<'a>) -> AllocMetric {
        let mut metric = (*self.tally.counts()).clone();
        metric.nodes_unavailable = unavailable(proposed.view(), self.ask.wanted.definition);
        metric.nearest = self.nearest(proposed);
        metric.resources_exhausted = asked(self.group(), &metric.dimension_exhausted);
        metric
    }

    /// The node that lacks least of what is asked for, in shares of the ask.
    fn nearest(&self, proposed: &Proposed<'a>) -> Option<Nearest> {
        let lacks = |row: Row| {
            let CandidateState::Exhausted(reason) = self.states[row as usize] else { return None };
            let is_amount = matches!(self.tally.reasons[reason as usize].0.as_str(), "cpu" | "memory" | "disk");
            let entry = self.table.entry(row);
            let (need, used) = (self.need.amounts(entry), proposed.usage(entry).amounts);
            let short = used.plus(need).minus(entry.allocatable);
            let share = |short: i64, need: i64| if short > 0 { ratio(short, need.max(1)) } else { 0.0 };
            let sum = share(short.cpu, need.cpu)
                + share(short.memory_mb, need.memory_mb)
                + share(short.disk_mb, need.disk_mb);
            (is_amount && sum > 0.0).then_some((sum, short, entry))
        };
        let nearest = self.exhausted().filter_map(lacks).min_by(|a, b| a.0.total_cmp(&b.0));
        nearest.map(|(_, short, entry)| Nearest {
            node: entry.node.name.to_string(),
            cpu: short.cpu.max(0),
            memory_mb: short.memory_mb.max(0),
            disk_mb: short.disk_mb.max(0),
        })
    }

    /// What a blocked evaluation waits for, as far as this group knows.
    pub(super) fn note_waiting(&self, waits: &mut WaitsFor, job: &JobKey) {
        waits.is_escaped |= self.checks.is_escaped();
        for (class, is_eligible) in self.checks.classes() {
            *waits.classes.entry(class.to_string()).or_default() |= is_eligible;
        }
        for name in feasible::asked_names(self.group()) {
            waits.missing.insert(format!("host-volume:{}:{name}", job.namespace));
        }
        for id in self.tally.keys().flat_map(|reason| volumes_of(reason)) {
            waits.missing.insert(format!("csi-volume:{}:{id}", job.namespace));
        }
    }
}

/// The volumes whose next change may mend a reason.
fn volumes_of(reason: &str) -> Vec<&str> {
    let Some((code, rest)) = reason.split_once(':') else { return Vec::new() };
    match code {
        "csiVolumeNotFound" => rest.split(',').collect(),
        "csiNoRead" | "csiNoWrite" | "csiInUse" => vec![rest],
        "csiInUseGCd" => rest.rsplit_once(':').map(|(id, _)| id).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Nodes of a job's pool and datacenters that are not ready, by why. O(nodes).
fn unavailable(view: &ClusterView, definition: &Definition) -> BTreeMap<String, i64> {
    let mut counts = BTreeMap::new();
    for entry in view.node_entries().filter(|entry| !entry.is_ready && feasible::is_covered(&entry.node, definition)) {
        let why = match entry.node.phase {
            NodePhase::Ready if entry.node.is_draining => "draining",
            NodePhase::Ready => "ineligible",
            phase => phase.as_str(),
        };
        *counts.entry(why.to_owned()).or_default() += 1;
    }
    counts
}

/// What each task of a group asks for in the dimensions that ran out.
pub(super) fn asked(group: &Group, exhausted: &BTreeMap<String, i64>) -> BTreeMap<String, ResourcesExhausted> {
    let (cpu, memory) = (exhausted.contains_key("cpu"), exhausted.contains_key("memory"));
    if !cpu && !memory {
        return BTreeMap::new();
    }
    let ask = |task: &drover_api::task::Task| ResourcesExhausted {
        cpu: if cpu { task.resources.cpu.unwrap_or(0) } else { 0 },
        memory_mb: if memory { task.resources.memory_mb } else { 0 },
    };
    group.tasks.iter().map(|task| (task.name.clone(), ask(task))).collect()
}

/// How full a node is, from 0 to 1 (binpack), or how empty (spread): Nomad's formula, after Google's BestFit v3.
pub(in crate::scheduler) fn fullness(algorithm: Algorithm, total: Amounts, used: Amounts) -> f64 {
    let free = |total: i64, used: i64| if total > 0 { 1.0 - ratio(used, total) } else { 0.0 };
    let power_of_ten = |exponent: f64| (exponent * std::f64::consts::LN_10).exp();
    let sum = power_of_ten(free(total.cpu, used.cpu)) + power_of_ten(free(total.memory_mb, used.memory_mb));
    let raw = match algorithm {
        Algorithm::Binpack => 20.0 - sum,
        Algorithm::Spread => sum - 2.0,
    };
    raw.clamp(0.0, 18.0) / 18.0
}

/// Counts of nodes by what stands in their way.
#[derive(Debug)]
struct NodeTally {
    metric: AllocMetric,
    reasons: Vec<(String, i64, bool)>,
    numbers: HashMap<String, u32>,
    datacenters: Vec<(String, i64)>,
    shared: Option<Arc<AllocMetric>>,
}

impl NodeTally {
    fn new(pool: &str) -> Self {
        let metric = AllocMetric { node_pool: pool.to_owned(), ..AllocMetric::default() };
        Self { metric, reasons: Vec::new(), numbers: HashMap::new(), datacenters: Vec::new(), shared: None }
    }

    fn datacenter(&mut self, name: &str) -> u32 {
        let known = self.datacenters.iter().position(|(known, _)| known == name);
        let at = known.unwrap_or_else(|| {
            self.datacenters.push((name.to_owned(), 0));
            self.datacenters.len() - 1
        });
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    fn available(&mut self, datacenter: u32) {
        self.datacenters[datacenter as usize].1 += 1;
    }

    fn evaluated(&mut self) {
        self.metric.nodes_evaluated += 1;
        self.metric.nodes_in_pool += 1;
    }

    fn reason(&mut self, key: &str) -> u32 {
        if let Some(known) = self.numbers.get(key) {
            return *known;
        }
        let number = u32::try_from(self.reasons.len()).unwrap_or(u32::MAX);
        self.reasons.push((key.to_owned(), 0, false));
        self.numbers.insert(key.to_owned(), number);
        number
    }

    fn keys(&self) -> impl Iterator<Item = &str> {
        self.reasons.iter().filter(|(_, n, _)| *n > 0).map(|(key, ..)| key.as_str())
    }

    fn enter(&mut self, state: CandidateState, entry: &NodeEntry) {
        self.count(state, entry, 1);
    }

    fn leave(&mut self, state: CandidateState, entry: &NodeEntry) {
        self.count(state, entry, -1);
    }

    fn count(&mut self, state: CandidateState, entry: &NodeEntry, by: i64) {
        let (reason, is_filter) = match state {
            CandidateState::Outside | CandidateState::Open(_) => return,
            CandidateState::Filtered(reason) => (reason, true),
            CandidateState::Exhausted(reason) => (reason, false),
        };
        self.shared = None;
        let counted = &mut self.reasons[reason as usize];
        counted.1 += by;
        counted.2 = is_filter;
        let metric = &mut self.metric;
        let (all, by_class) = if is_filter {
            (&mut metric.nodes_filtered, &mut metric.class_filtered)
        } else {
            (&mut metric.nodes_exhausted, &mut metric.class_exhausted)
        };
        *all += by;
        if entry.has_class_name {
            *by_class.entry(entry.node.class.clone()).or_default() += by;
        }
    }

    fn counts(&mut self) -> Arc<AllocMetric> {
        if let Some(shared) = &self.shared {
            return Arc::clone(shared);
        }
        let mut metric = self.metric.clone();
        metric.nodes_available.extend(self.datacenters.iter().filter(|(_, n)| *n > 0).cloned());
        metric.class_filtered.retain(|_, n| *n > 0);
        metric.class_exhausted.retain(|_, n| *n > 0);
        for (key, n, is_filter) in self.reasons.iter().filter(|(_, n, _)| *n > 0) {
            let counts = if *is_filter { &mut metric.constraint_filtered } else { &mut metric.dimension_exhausted };
            counts.insert(key.clone(), *n);
        }
        let shared = Arc::new(metric);
        self.shared = Some(Arc::clone(&shared));
        shared
    }
}

/// Nodes on which an allocation and those before it failed.
pub(super) fn penalty_nodes(previous: Option<&Alloc>) -> Vec<NodeName> {
    let failed = previous.filter(|alloc| alloc.client == drover_api::allocation::ClientStatus::Failed);
    let events = previous.iter().flat_map(|alloc| alloc.tracker.iter().flat_map(|tracker| &tracker.events));
    let mut nodes: Vec<NodeName> = events.map(|event| event.prev_node_name.as_str().into()).collect();
    nodes.extend(failed.map(|alloc| alloc.node.clone()));
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}
