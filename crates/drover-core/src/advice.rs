//! What would help a group that found no place: single changes of its job, tried out with the real scheduler.
//!
//! Input is the view, evaluation and plan that left something without a node; output the changes with the most effect.
//! Nothing is guessed: each change was planned on the same view. For people who ask; far too dear for every evaluation.
//! Must never know how a plan is written.

use std::fmt;
use std::sync::Arc;

use drover_api::JobSpec;
use drover_api::group::Group;
use drover_api::metric::AllocMetric;
use drover_api::placement::Constraint;

use crate::definition::Definition;
use crate::model::Job;
use crate::scheduler::plan::{Evaluation, Plan};
use crate::scheduler::{self};
use crate::snapshot::ClusterView;

/// Most changes that are tried for one group.
const TRIALS: usize = 64;
/// Most changes that are told.
const TOLD: usize = 3;
/// Least that a task may ask for, in MHz.
const LEAST_CPU: i64 = 1;
/// Least memory of a task, in MiB.
const LEAST_MEMORY: i64 = 10;
/// Least disk of a group, in MiB.
const LEAST_DISK: i64 = 10;

/// One change, and its effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What to change.
    pub change: JobChange,
    /// How many more allocations of the group find a node then.
    pub gain: i64,
}

/// A change of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobChange {
    /// A constraint is taken away.
    WithoutConstraint {
        /// Where it stands.
        field: String,
        /// It.
        rule: String,
    },
    /// The job may run in every datacenter.
    AnyDatacenter,
    /// A port is any free one instead of a fixed one.
    FreePort {
        /// Its label.
        label: String,
        /// The fixed one.
        instead_of: i64,
    },
    /// Less is asked for: at most this much.
    Less {
        /// The field.
        field: String,
        /// The most that helps.
        value: i64,
        /// What is asked for now.
        instead_of: i64,
    },
}

impl fmt::Display for JobChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WithoutConstraint { field, rule } => write!(f, "without {field} ({rule})"),
            Self::AnyDatacenter => f.write_str("with spec.datacenters [\"*\"]"),
            Self::FreePort { label, instead_of } => write!(f, "with a free port for {label} instead of {instead_of}"),
            Self::Less { field, value, instead_of } => write!(f, "with {field} {value} instead of {instead_of}"),
        }
    }
}

/// The changes that help a group most, the most helpful first. `seed` is the plan's.
pub fn advice(view: &ClusterView, eval: &Evaluation, seed: u64, plan: &Plan, group: &str) -> Vec<Advice> {
    let (Some(job), Some(metric)) = (view.job(&eval.job), plan.failed.get(group)) else { return Vec::new() };
    let Some(at) = job.definition.spec.groups.iter().position(|known| known.name == group) else { return Vec::new() };
    let trial = Trial { view, eval, seed, job, group, at, missing: missing(plan, group) };
    let mut found: Vec<Advice> =
        trial.changes(metric).into_iter().take(TRIALS).filter_map(|try_out| try_out()).collect();
    found.sort_by_key(|advice| std::cmp::Reverse(advice.gain));
    found.truncate(TOLD);
    found
}

fn missing(plan: &Plan, group: &str) -> i64 {
    plan.failed.get(group).map_or(0, |metric| metric.coalesced_failures.saturating_add(1))
}

/// A change that has an effect.
fn helpful(gain: i64, change: JobChange) -> Option<Advice> {
    (gain > 0).then_some(Advice { change, gain })
}

struct Trial<'a> {
    view: &'a ClusterView,
    eval: &'a Evaluation,
    seed: u64,
    job: &'a Arc<Job>,
    group: &'a str,
    at: usize,
    missing: i64,
}

/// A change that is planned when it is called.
type TryOut<'t> = Box<dyn FnOnce() -> Option<Advice> + 't>;

impl Trial<'_> {
    fn spec(&self) -> &JobSpec {
        &self.job.definition.spec
    }

    fn group(&self) -> &Group {
        &self.spec().groups[self.at]
    }

    /// How many more find a node when the spec is changed like this.
    fn gain(&self, change: impl FnOnce(&mut JobSpec, usize)) -> i64 {
        let mut spec = self.spec().clone();
        change(&mut spec, self.at);
        let definition = Definition::new(&spec, &self.job.key.name);
        let mut view = self.view.clone();
        // As if the version had always been like this, so that what runs is not replaced for it.
        let (key, uid, version) = (self.job.key.clone(), self.job.uid.clone(), self.job.version);
        view.put_version(key, uid, version, Arc::clone(&definition));
        view.put_job(Job { definition, ..(**self.job).clone() });
        let plan = scheduler::plan(&view, self.eval, &mut fastrand::Rng::with_seed(self.seed));
        self.missing - missing(&plan, self.group)
    }

    fn changes(&self, metric: &AllocMetric) -> Vec<TryOut<'_>> {
        let mut all: Vec<TryOut<'_>> = Vec::new();
        if !metric.constraint_filtered.is_empty() {
            self.constraints(&mut all);
        }
        if self.spec().datacenters != ["*"] {
            let any = || self.gain(|spec, _| spec.datacenters = vec!["*".to_owned()]);
            all.push(Box::new(move || helpful(any(), JobChange::AnyDatacenter)));
        }
        if !metric.dimension_exhausted.is_empty() {
            self.ports(&mut all);
            self.amounts(metric, &mut all);
        }
        all
    }

    fn constraints<'t>(&'t self, all: &mut Vec<TryOut<'t>>) {
        let (spec, group) = (self.spec(), self.group());
        for (n, constraint) in spec.constraints.iter().enumerate() {
            let field = format!("spec.constraints[{n}]");
            all.push(self.without(field, constraint, move |spec, _| drop(spec.constraints.remove(n))));
        }
        for (n, constraint) in group.constraints.iter().enumerate() {
            let field = format!("spec.groups[{}].constraints[{n}]", self.at);
            all.push(self.without(field, constraint, move |spec, at| drop(spec.groups[at].constraints.remove(n))));
        }
        for (m, task) in group.tasks.iter().enumerate() {
            for (n, constraint) in task.constraints.iter().enumerate() {
                let field = format!("spec.groups[{}].tasks[{m}].constraints[{n}]", self.at);
                let remove = move |spec: &mut JobSpec, at: usize| {
                    spec.groups[at].tasks[m].constraints.remove(n);
                };
                all.push(self.without(field, constraint, remove));
            }
        }
    }

    fn without<'t>(
        &'t self,
        field: String,
        constraint: &Constraint,
        remove: impl FnOnce(&mut JobSpec, usize) + 't,
    ) -> TryOut<'t> {
        let parts = [constraint.l_target.as_str(), constraint.operand.as_str(), constraint.r_target.as_str()];
        let rule = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
        Box::new(move || helpful(self.gain(remove), JobChange::WithoutConstraint { field, rule }))
    }

    fn ports<'t>(&'t self, all: &mut Vec<TryOut<'t>>) {
        for (m, network) in self.group().networks.iter().enumerate() {
            for (n, port) in network.ports.iter().enumerate() {
                let Some(instead_of) = port.r#static else { continue };
                let label = port.label.clone();
                all.push(Box::new(move || {
                    let gain = self.gain(|spec, at| spec.groups[at].networks[m].ports[n].r#static = None);
                    helpful(gain, JobChange::FreePort { label, instead_of })
                }));
            }
        }
    }

    /// Less of what ran out, of the task that asks for most of it.
    fn amounts<'t>(&'t self, metric: &AllocMetric, all: &mut Vec<TryOut<'t>>) {
        let is_exhausted = |dimension: &str| metric.dimension_exhausted.contains_key(dimension);
        let tasks = || self.group().tasks.iter().enumerate();
        let field = |m: usize, name: &str| format!("spec.groups[{}].tasks[{m}].resources.{name}", self.at);
        let of_cpu = tasks().filter_map(|(m, task)| Some((task.resources.cpu?, m))).max();
        if let Some((asked, m)) = of_cpu.filter(|_| is_exhausted("cpu")) {
            let set = move |spec: &mut JobSpec, at: usize, value| spec.groups[at].tasks[m].resources.cpu = Some(value);
            all.push(Box::new(move || self.less(field(m, "cpu"), asked, LEAST_CPU, set)));
        }
        let of_memory = tasks().map(|(m, task)| (task.resources.memory_mb, m)).max();
        if let Some((asked, m)) = of_memory.filter(|_| is_exhausted("memory")) {
            let set = move |spec: &mut JobSpec, at: usize, value| spec.groups[at].tasks[m].resources.memory_mb = value;
            all.push(Box::new(move || self.less(field(m, "memoryMB"), asked, LEAST_MEMORY, set)));
        }
        if is_exhausted("disk") {
            let asked = self.group().ephemeral_disk.size_mb;
            // The logs of each task must still fit.
            let logs = tasks().map(|(_, task)| task.logs.max_files.saturating_mul(task.logs.max_file_size_mb));
            let least = logs.max().unwrap_or(0).saturating_add(1).max(LEAST_DISK);
            let field = format!("spec.groups[{}].ephemeralDisk.sizeMB", self.at);
            let set = |spec: &mut JobSpec, at: usize, value| spec.groups[at].ephemeral_disk.size_mb = value;
            all.push(Box::new(move || self.less(field, asked, least, set)));
        }
    }

    /// The largest value below what is asked for that helps at all. O(log asked) plans.
    fn less(&self, field: String, asked: i64, least: i64, set: impl Fn(&mut JobSpec, usize, i64)) -> Option<Advice> {
        let gain = |value: i64| self.gain(|spec, at| set(spec, at, value));
        if asked <= least || gain(least) <= 0 {
            return None;
        }
        let (mut helps, mut too_much) = (least, asked);
        while too_much - helps > 1 {
            let middle = helps + (too_much - helps) / 2;
            if gain(middle) > 0 { helps = middle } else { too_much = middle }
        }
        helpful(gain(helps), JobChange::Less { field, value: helps, instead_of: asked })
    }
}

#[cfg(test)]
mod tests;
