//! The world in which the scheduler's cases are tried: a cluster with one job, in which tests change what they need.

mod acceptance;
mod admission;
mod advice;
mod apply;
mod attempts;
mod best_node;
mod classes;
mod counted;
mod decisions;
mod deployment;
mod devices;
mod disconnect;
mod evictions;
mod explain;
mod feasible;
mod model;
mod operands;
mod patterns;
mod place;
mod preempt;
mod properties;
mod proposed;
mod quality;
mod reschedule;
mod rollout;
mod room;
mod rules;
mod system;
mod values;
mod victims;
mod volumes;

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::allocation::{AllocatedResources, ClientStatus, DesiredStatus, DesiredTransition, FollowUp};
use drover_api::client_node::NodePhase;
use drover_api::deployment::{DeploymentPhase, GroupState};
use drover_api::job::EvalTrigger;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::plan::{DesiredUpdates, Evaluation, Plan, StopReason};
use crate::definition::Definition;
use crate::ids::{JobKey, NodeName, Uid};
use crate::model::{Alloc, Amounts, Deployment, DriverState, Health, HostAddress, Job, Node};
use crate::snapshot::ClusterView;

pub(crate) fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).unwrap()
}

pub(crate) fn key() -> JobKey {
    JobKey::new("shop", "web")
}

pub(crate) fn node(name: &str) -> Node {
    Node {
        name: NodeName::from(name),
        datacenter: "dc1".into(),
        pool: "default".into(),
        class: String::new(),
        phase: NodePhase::Ready,
        is_eligible: true,
        is_draining: false,
        attributes: BTreeMap::from([("kernel.name".into(), "linux".into())]),
        meta: BTreeMap::new(),
        allocatable: Amounts { cpu: 100_000, memory_mb: 100_000, disk_mb: 1_000_000 },
        cores: (0..8).collect(),
        core_mhz: 1000,
        drivers: BTreeMap::from([("mock".into(), DriverState::Healthy)]),
        host_networks: vec![HostAddress {
            alias: "default".into(),
            ip: "10.0.0.1".parse().unwrap(),
            reserved_ports: [].into(),
        }],
        network_modes: [].into(),
        reserved_ports: [].into(),
        dynamic_ports: (20_000, 29_999),
        devices: Vec::new(),
        host_volumes: BTreeMap::new(),
        csi: BTreeMap::new(),
        max_allocs: None,
    }
}

pub(crate) fn spec(count: i64) -> Value {
    json!({ "groups": [{ "name": "web", "count": count, "update": { "maxParallel": 0 }, "tasks": [
        { "name": "t", "driver": "mock", "resources": { "cpu": 100, "memoryMB": 100 } }] }] })
}

/// A cluster with one job, in which tests change what they need.
pub(crate) struct World {
    pub(crate) view: ClusterView,
    pub(crate) job: Job,
}

impl World {
    /// A service job of `count` and ten nodes.
    pub(crate) fn new(spec: &Value) -> Self {
        let mut view = ClusterView::default();
        for n in 0..10 {
            view.put_node(node(&format!("n-{n}")));
        }
        let definition = Definition::new(&serde_json::from_value(spec.clone()).unwrap(), "web");
        let job = Job {
            key: key(),
            uid: Uid::from("job-uid"),
            generation: 1,
            version: 1,
            stopped: false,
            counts: definition.spec.groups.iter().map(|group| (group.name.clone(), group.count)).collect(),
            definition: Arc::clone(&definition),
        };
        view.put_version(key(), job.uid.clone(), 1, definition);
        let mut world = Self { view, job };
        world.put_job();
        world
    }

    /// The same, with no node.
    pub(crate) fn without_nodes(spec: &Value) -> Self {
        let mut world = Self::new(spec);
        for n in 0..10 {
            world.view.remove_node(&NodeName::from(format!("n-{n}")));
        }
        world
    }

    pub(crate) fn put_job(&mut self) {
        self.view.put_job(self.job.clone());
    }

    /// An old version of the job, with that spec.
    fn old(&mut self, spec: &Value) {
        let definition = Definition::new(&serde_json::from_value(spec.clone()).unwrap(), "web");
        self.view.put_version(key(), self.job.uid.clone(), 0, definition);
    }

    /// Allocations in these slots, one on each node in turn, running and healthy unless changed.
    pub(crate) fn allocs(&mut self, slots: impl IntoIterator<Item = i64>, change: impl Fn(&mut Alloc)) {
        for index in slots {
            let mut alloc = Alloc {
                key: JobKey::new("shop", format!("web-web-{index}-{}", self.view.allocs_of_job(&key()).count())),
                uid: Uid::from(format!("uid-{index}")),
                job: key(),
                job_uid: self.job.uid.clone(),
                job_version: 1,
                group: "web".into(),
                index,
                node: NodeName::from(format!("n-{}", index % 10)),
                desired: DesiredStatus::Run,
                is_superseded: false,
                client: ClientStatus::Running,
                transition: DesiredTransition::default(),
                previous: None,
                follow_up: None,
                resources: Arc::new(AllocatedResources::default()),
                canary: false,
                deployment: None,
                health: Some(Health { is_healthy: true, deployment: None, at: Timestamp::UNIX_EPOCH }),
                health_index: 0,
                states: Vec::new(),
                best_score: None,
                task_starts: Vec::new(),
                ran_successfully: false,
                last_event_at: now(),
                tracker: None,
                is_deleting: false,
                has_ended: false,
                unmounted: std::collections::BTreeSet::new(),
                host_volumes: std::collections::BTreeMap::new(),
                created_at: now() - SignedDuration::from_secs(1000 - index),
            };
            change(&mut alloc);
            self.view.put_alloc(alloc);
        }
    }

    fn set_phase(&mut self, names: &[&str], phase: NodePhase) {
        for name in names {
            self.view.put_node(Node { phase, ..node(name) });
        }
    }

    /// A deployment of a version of the job, with the state of group `web`.
    fn deployment(&mut self, version: i64, phase: DeploymentPhase, state: GroupState) {
        self.view.put_deployment(Deployment {
            key: JobKey::new("shop", format!("web-d{version}")),
            uid: Uid::from(format!("deployment-{version}")),
            job: key(),
            job_uid: self.job.uid.clone(),
            job_version: version,
            phase,
            groups: BTreeMap::from([("web".to_owned(), state)]),
            eval_priority: 0,
            judgements: BTreeMap::new(),
            created_at: now() - SignedDuration::from_secs(100 - version),
        });
    }

    pub(crate) fn plan(&self) -> Plan {
        self.plan_for(EvalTrigger::JobRegister, None)
    }

    fn evaluation(&self) -> Evaluation {
        let trigger = EvalTrigger::JobRegister;
        Evaluation { id: "e".into(), job: self.job.key.clone(), trigger, priority: 50, now: now(), wait_until: None }
    }

    fn plan_for(&self, trigger: EvalTrigger, wait_until: Option<Timestamp>) -> Plan {
        let evaluation = Evaluation { trigger, wait_until, ..self.evaluation() };
        super::plan(&self.view, &evaluation, &mut fastrand::Rng::with_seed(7))
    }
}

/// Makes an allocation one of deployment `web-d<version>`, with a verdict or none.
fn of_deployment(alloc: &mut Alloc, version: i64, health: Option<bool>) {
    let name: Arc<str> = format!("web-d{version}").into();
    alloc.job_version = version;
    alloc.health = health.map(|is_healthy| Health { is_healthy, deployment: Some(Arc::clone(&name)), at: now() });
    alloc.deployment = Some(name);
}

/// What a plan does with slots.
#[derive(Debug, PartialEq, Eq)]
struct Slots {
    placed: Vec<i64>,
    stopped: Vec<i64>,
    destructive: Vec<i64>,
}

fn slots(plan: &Plan) -> Slots {
    let sorted = |slots: &mut dyn Iterator<Item = i64>| {
        let mut slots: Vec<i64> = slots.collect();
        slots.sort_unstable();
        slots
    };
    let placements = || plan.placements.iter();
    let rescheduled = placements().filter(|one| !one.is_destructive).filter_map(|one| one.replaces.as_ref());
    Slots {
        placed: sorted(&mut placements().filter(|one| !one.is_destructive).map(|one| one.index)),
        stopped: sorted(&mut plan.stops.iter().chain(rescheduled).map(|stop| stop.alloc.index)),
        destructive: sorted(&mut placements().filter(|one| one.is_destructive).map(|one| one.index)),
    }
}

fn check(world: &World, placed: &[i64], stopped: &[i64], destructive: &[i64]) -> Plan {
    let plan = world.plan();
    let wanted = Slots { placed: placed.to_vec(), stopped: stopped.to_vec(), destructive: destructive.to_vec() };
    assert_eq!(slots(&plan), wanted);
    plan
}

fn desired(plan: &Plan) -> DesiredUpdates {
    plan.desired["web"]
}

/// Asserts the counters; those that are not named must be 0.
macro_rules! assert_desired {
    ($plan:expr, { $($field:ident: $value:expr),* $(,)? }) => {
        #[allow(clippy::needless_update, reason = "a case may name every counter")]
        {
            assert_eq!(desired(&$plan), DesiredUpdates { $($field: $value,)* ..DesiredUpdates::default() });
        }
    };
}
use assert_desired;

fn range(slots: std::ops::Range<i64>) -> Vec<i64> {
    slots.collect()
}

/// Numbers by name, as metrics have them.
fn counts(all: &[(&str, i64)]) -> BTreeMap<String, i64> {
    all.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
}

/// The job of a spec, with `change` made to its only group.
fn with(mut spec: Value, field: &str, value: Value) -> Value {
    spec["groups"][0][field] = value;
    spec
}

/// A spec of the job before a change that a node takes over in place.
fn before_an_in_place_change(mut spec: Value) -> Value {
    spec["groups"][0]["tasks"][0]["killTimeout"] = json!("9s");
    spec
}

/// A spec of the job before a change that needs new allocations.
fn before_a_destructive_change(mut spec: Value) -> Value {
    spec["groups"][0]["tasks"][0]["env"] = json!({ "RELEASE": "1" });
    spec
}
