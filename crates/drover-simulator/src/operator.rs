//! An operator with kubectl and drover's commands: what a scenario's steps do to objects. Each act is what the command
//! writes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use drover_api::{Allocation, GoDuration, Job, JobSpec, annotation, names};
use drover_core::{dispatch, periodic};
use drover_store::memory::{Caller, FieldSelection, Kind, Stored, Target, Unknown, Write};
use drover_store::{Key, Ownership, Part, Precondition};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::filter;
use super::link::Client;
use super::nodes::Nodes;
use super::scenario::{
    AllocAction, AllocFilter, AllocStep, ChecksAction, ChecksStep, DeploymentAction, DeploymentStep, JobAction,
    JobStep, NodeAction, NodeStep, ObjectName, VolumeAction, VolumeStep,
};
use super::state;
use super::verb::Verb;
use super::world::World;
use drover_agent::simulated::{Machine, PortAnswer, Restart, SimulatedEnd};

/// The field manager of an operator.
const MANAGER: &str = "kubectl";

/// An operator.
#[derive(Debug)]
pub(super) struct Operator {
    world: Arc<World>,
}

impl Operator {
    /// An operator in this world.
    pub(super) fn new(world: &Arc<World>) -> Self {
        Self { world: Arc::clone(world) }
    }

    fn done(&self, verb: Verb, result: Result<Write, drover_store::memory::Refusal>) -> anyhow::Result<()> {
        let write = result?;
        self.world.observe(Client::User, verb, write.change);
        Ok(())
    }

    /// Makes a namespace.
    pub(super) fn make_namespace(&self, name: &str) -> anyhow::Result<()> {
        let object = json!({ "metadata": { "name": name }, "status": { "phase": "Active" } });
        let made = self.world.store.create(World::kind("Namespace")?, object, Unknown::Refuse, self.caller());
        self.done(Verb::Create, made)
    }

    /// A node as the kubelet registers it.
    pub(super) fn make_core_node(&self, name: &str, address: &str) -> anyhow::Result<()> {
        let addresses = json!([{ "type": "InternalIP", "address": address }, { "type": "Hostname", "address": name }]);
        let object = json!({ "metadata": { "name": name }, "status": { "addresses": addresses } });
        let made = self.world.store.create(World::kind("Node")?, object, Unknown::Refuse, self.caller());
        self.done(Verb::Create, made)
    }

    /// `kubectl apply --server-side`: the API server's answer, unknown fields refused.
    pub(super) fn apply(&self, manifest: &Value) -> anyhow::Result<()> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let name = text(&manifest["metadata"]["name"]).context("apply: a manifest has no metadata.name")?;
        let kind = text(&manifest["kind"]).with_context(|| format!("apply {name:?}: kind is missing"))?;
        let kind = World::kind(&kind).with_context(|| format!("apply {name:?}"))?;
        let version = text(&manifest["apiVersion"]).unwrap_or_default();
        ensure!(
            version == kind.api_version,
            "apply {} {name:?}: apiVersion is {version:?}; it must be {:?}",
            kind.name,
            kind.api_version
        );
        let namespace = text(&manifest["metadata"]["namespace"]).unwrap_or_else(|| "default".to_owned());
        let key = Key { namespace: kind.is_namespaced.then_some(namespace), name };
        let target = Target { kind, key: &key, part: Part::Spec, precondition: &Precondition::default() };
        let result = self.world.store.apply(target, manifest.clone(), Ownership::Force, self.caller());
        self.done(Verb::Patch, result).with_context(|| format!("apply {} {key}", kind.name))
    }

    fn caller(&self) -> Caller<'static> {
        Caller { manager: MANAGER, now: self.world.now() }
    }

    /// `kubectl delete`.
    pub(super) fn delete(&self, object: &ObjectName) -> anyhow::Result<()> {
        let kind = World::kind(&object.kind)?;
        let namespace = object.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let key = Key { namespace: kind.is_namespaced.then_some(namespace), name: object.name.clone() };
        self.remove(kind, &key)
    }

    fn remove(&self, kind: &'static Kind, key: &Key) -> anyhow::Result<()> {
        let result = self.world.store.delete(kind, key, &Precondition::default(), self.world.now());
        self.done(Verb::Delete, result).with_context(|| format!("delete {} {key}", kind.name))
    }

    /// `kubectl patch --type merge`.
    fn patch(&self, kind: &'static Kind, key: &Key, body: &Value) -> anyhow::Result<()> {
        let target = Target { kind, key, part: Part::Spec, precondition: &Precondition::default() };
        let result = self.world.store.merge(target, body, self.caller());
        self.done(Verb::Patch, result).with_context(|| format!("patch {} {key}", kind.name))
    }

    /// What an operator does to a node's object.
    pub(super) fn act_on_node(&self, name: &str, step: &NodeStep) -> anyhow::Result<()> {
        let kind = World::kind("ClientNode")?;
        let key = Key { namespace: None, name: name.to_owned() };
        let body = match step.action {
            NodeAction::Ineligible => json!({ "spec": { "eligibility": "ineligible" } }),
            NodeAction::Eligible => json!({ "spec": { "eligibility": "eligible" } }),
            NodeAction::Drain => {
                let mut drain = json!({ "force": step.force, "ignoreSystemJobs": step.ignore_system_jobs });
                if let Some(deadline) = step.deadline {
                    drain["deadline"] = json!(deadline);
                }
                json!({ "spec": { "drain": drain } })
            }
            NodeAction::CancelDrain if step.mark_eligible => {
                json!({ "spec": { "drain": null, "eligibility": "eligible" } })
            }
            NodeAction::CancelDrain => json!({ "spec": { "drain": null } }),
            NodeAction::Delete => return self.remove(kind, &key),
            NodeAction::Partition
            | NodeAction::Heal
            | NodeAction::Poweroff
            | NodeAction::Boot
            | NodeAction::RestartAgent
            | NodeAction::Freeze => bail!("node {name:?}: this is done to the machine, not to its object"),
        };
        self.patch(kind, &key, &body)
    }

    fn allocs(&self, filter: &AllocFilter, only_newest: bool) -> anyhow::Result<Vec<Arc<Stored>>> {
        let mut found = self.matching(filter)?;
        if only_newest && found.len() > 1 {
            found.drain(..found.len() - 1);
        }
        ensure!(!found.is_empty(), "no allocation is there for {filter:?}");
        Ok(found)
    }

    /// The allocations that the filter means, the oldest first.
    fn matching(&self, filter: &AllocFilter) -> anyhow::Result<Vec<Arc<Stored>>> {
        let all = self.world.store.list(World::kind("Allocation")?, &drover_store::memory::FieldSelection::default());
        let is_meant =
            |stored: &Arc<Stored>| stored.typed::<Allocation>().is_ok_and(|alloc| filter::matches(filter, alloc));
        let mut found: Vec<Arc<Stored>> = all.into_iter().filter(is_meant).collect();
        found.sort_by_key(|stored| state::age(stored));
        Ok(found)
    }

    /// What is done to allocations: by the machine, by the agent, or by an operator's write.
    pub(super) fn act_on_allocs(
        &self,
        step: &AllocStep,
        nodes: &Nodes,
        errands: &mut JoinSet<()>,
    ) -> anyhow::Result<()> {
        for stored in self.allocs(&step.filter(), step.newest)? {
            let alloc = stored.typed::<Allocation>().map_err(anyhow::Error::msg)?;
            let end = match step.action {
                AllocAction::Fail => Some(SimulatedEnd::Code(step.exit_code.unwrap_or(1))),
                AllocAction::Complete => Some(SimulatedEnd::Code(0)),
                AllocAction::OomKill => Some(SimulatedEnd::OutOfMemory),
                AllocAction::Restart
                | AllocAction::RestartAll
                | AllocAction::Stop
                | AllocAction::Signal
                | AllocAction::SetHealthy
                | AllocAction::SetUnhealthy
                | AllocAction::Delete => None,
            };
            match (end, step.action) {
                (Some(end), _) => end_tasks(&nodes.machine(&alloc.spec.node_name)?, alloc, step, end)?,
                (None, AllocAction::Restart | AllocAction::RestartAll | AllocAction::Signal) => {
                    let machine = nodes.machine(&alloc.spec.node_name)?;
                    self.ask_agent(machine, stored.uid().to_owned(), step.clone(), errands);
                }
                (None, AllocAction::Stop) => {
                    let body = json!({ "spec": { "desiredTransition": { "migrate": true } } });
                    self.patch(stored.kind, &stored.key, &body)?;
                }
                (None, AllocAction::Delete) => self.remove(stored.kind, &stored.key)?,
                (None, action) => self.judge_by_hand(alloc, &stored.key, action == AllocAction::SetHealthy)?,
            }
        }
        Ok(())
    }

    /// What the checks of allocations find from now on, at each of their ports; where none matches there is nothing to
    /// do. Returns for how long.
    pub(super) fn act_on_checks(&self, step: &ChecksStep, nodes: &Nodes) -> anyhow::Result<Duration> {
        let lasts = step.lasts.map(GoDuration::to_std);
        let every = step.every.map(GoDuration::to_std);
        for stored in self.matching(&step.filter())? {
            let alloc = stored.typed::<Allocation>().map_err(anyhow::Error::msg)?;
            let node = &alloc.spec.node_name;
            let machine = nodes.machine(node)?;
            for port in &alloc.spec.resources.ports {
                let number = u16::try_from(port.value).context("a port")?;
                let answer = match step.action {
                    ChecksAction::Mend => {
                        machine.mend_port(number);
                        continue;
                    }
                    ChecksAction::Fail => PortAnswer::Failing,
                    ChecksAction::Silence => PortAnswer::Silent,
                    ChecksAction::Flap => PortAnswer::Flapping {
                        every: every.context("checks: flap needs `every`: how often what they find is drawn")?,
                        seed: nodes.seed_of(node, "flapping checks")? ^ u64::from(number),
                    },
                };
                machine.set_port(number, answer, lasts.context("checks: say how long, with `for`")?);
            }
        }
        Ok(lasts.unwrap_or_default())
    }

    /// The agent's answer takes time; a refusal fails the run when it comes.
    fn ask_agent(&self, machine: Machine, uid: String, step: AllocStep, errands: &mut JoinSet<()>) {
        let world = Arc::clone(&self.world);
        world.log().invariants.expect_restart(&uid);
        errands.spawn(async move {
            let result = match (step.action, step.task) {
                (AllocAction::Signal, task) => {
                    let signal = step.signal.unwrap_or_else(|| "SIGHUP".to_owned());
                    machine.signal(&uid, task.as_deref(), &signal).await
                }
                (AllocAction::RestartAll, _) => machine.restart(&uid, Restart::All).await,
                (_, Some(task)) => machine.restart(&uid, Restart::Task(task)).await,
                (_, None) => machine.restart(&uid, Restart::Running).await,
            };
            if let Err(error) = result {
                world.log().fail(world.clock.elapsed(), format!("alloc {uid}: {:?}: {error}", step.action));
            }
        });
    }

    fn judge_by_hand(&self, alloc: &Allocation, key: &Key, is_healthy: bool) -> anyhow::Result<()> {
        let deployment = &alloc.spec.deployment_name;
        ensure!(!deployment.is_empty(), "allocation {key} belongs to no deployment, so its health cannot be set");
        let of = Key { namespace: key.namespace.clone(), name: deployment.clone() };
        let verdict = if is_healthy { "healthy" } else { "unhealthy" };
        let body = json!({ "spec": { "allocationHealth": { verdict: [alloc.metadata.uid] } } });
        self.patch(World::kind("Deployment")?, &of, &body)
    }

    /// What an operator does to a job's newest deployment.
    pub(super) fn act_on_deployment(&self, step: &DeploymentStep) -> anyhow::Result<()> {
        let newest = state::newest_deployment(&self.world.store, &step.namespace, &step.job, None)?;
        let stored = newest.with_context(|| format!("job {}/{} has no deployment", step.namespace, step.job))?;
        let body = match step.action {
            DeploymentAction::Promote if step.groups.is_empty() => json!({ "promote": { "all": true } }),
            DeploymentAction::Promote => json!({ "promote": { "all": false, "groups": step.groups } }),
            DeploymentAction::Pause => json!({ "paused": true }),
            DeploymentAction::Resume => json!({ "paused": false }),
            DeploymentAction::Fail => json!({ "fail": true }),
        };
        self.patch(stored.kind, &stored.key, &json!({ "spec": body }))
    }

    /// What an operator does to a job.
    pub(super) fn act_on_job(&self, step: &JobStep) -> anyhow::Result<()> {
        let kind = World::kind("Job")?;
        let key = Key { namespace: Some(step.namespace.clone()), name: step.name.clone() };
        let body = match step.action {
            JobAction::Stop => json!({ "spec": { "stop": true } }),
            JobAction::Start => json!({ "spec": { "stop": false } }),
            JobAction::Scale => {
                let count = step.count.with_context(|| format!("scale job {key}: count is missing"))?;
                let mut scale = json!({ "count": count });
                if let Some(group) = &step.group {
                    scale["group"] = json!(group);
                }
                json!({ "spec": { "scale": scale } })
            }
            JobAction::Delete => return self.remove(kind, &key),
            JobAction::Revert => return self.revert(kind, &key, step),
            JobAction::Dispatch => return self.dispatch(kind, &key, step),
            JobAction::PeriodicForce => return self.force(kind, &key),
        };
        self.patch(kind, &key, &body)
    }

    /// `drover job dispatch`: refused with what the command says, else a job without groups. A token that a dispatch
    /// has already makes nothing.
    fn dispatch(&self, kind: &'static Kind, key: &Key, step: &JobStep) -> anyhow::Result<()> {
        let parent = self.stored_job(kind, key).with_context(|| format!("dispatch: jobs {:?} not found", key.name))?;
        let token = step.token.clone().unwrap_or_default();
        let payload = dispatch::encoded(step.payload.as_deref().unwrap_or_default().as_bytes());
        let child: JobSpec = serde_json::from_value(json!({
            "type": parent.spec.r#type, "meta": step.meta, "groups": [],
            "dispatch": { "parent": key.name, "payload": payload, "idempotencyToken": token },
        }))?;
        let is_stopped = parent.spec.stop || parent.metadata.deletion_timestamp.is_some();
        let found = dispatch::Parent { name: &key.name, spec: Some(&parent.spec), is_stopped };
        let told: Vec<String> = dispatch::violations(found, &child).iter().map(ToString::to_string).collect();
        ensure!(told.is_empty(), "dispatch job {key}: {}", told.join("; "));
        let children =
            self.world.store.list(kind, &FieldSelection::default()).into_iter().filter_map(|one| typed(&one));
        let of_parent: Vec<Job> =
            children.filter(|job| job.spec.dispatch.as_ref().is_some_and(|of| of.parent == key.name)).collect();
        let has_token = |job: &Job| job.spec.dispatch.as_ref().is_some_and(|of| of.idempotency_token == token);
        if !token.is_empty() && of_parent.iter().any(has_token) {
            return Ok(());
        }
        let tag = format!("{:08x}", of_parent.len());
        let (id, name) = dispatch::child_names(&key.name, &parent.spec, "", self.world.now().as_second(), &tag);
        self.make_child(kind, &parent, &name, JobSpec { id, priority: parent.spec.priority, ..child })
    }

    /// `drover job periodic force`.
    fn force(&self, kind: &'static Kind, key: &Key) -> anyhow::Result<()> {
        let parent = self.stored_job(kind, key).with_context(|| format!("force: jobs {:?} not found", key.name))?;
        ensure!(parent.spec.periodic.is_some(), "periodicForce job {key}: it is not periodic");
        let child = periodic::child(&key.name, &parent.spec, self.world.now());
        self.make_child(kind, &parent, &child.name, child.spec)
    }

    fn stored_job(&self, kind: &'static Kind, key: &Key) -> Option<Job> {
        typed(&*self.world.store.get(kind, key)?)
    }

    fn make_child(&self, kind: &'static Kind, parent: &Job, name: &str, spec: JobSpec) -> anyhow::Result<()> {
        let mut object = json!(drover_api::owner::child(parent, name, spec));
        (object["apiVersion"], object["kind"]) = (json!(drover_api::API_VERSION), json!("Job"));
        let made = self.world.store.create(kind, object, Unknown::Refuse, self.caller());
        self.done(Verb::Create, made)
    }

    /// `drover job revert`: the spec of an earlier version, written as the operator's.
    fn revert(&self, kind: &'static Kind, key: &Key, step: &JobStep) -> anyhow::Result<()> {
        let number = step.version.with_context(|| format!("revert job {key}: version is missing"))?;
        let store = &self.world.store;
        let stored = store.get(kind, key).with_context(|| format!("revert: jobs {:?} not found", key.name))?;
        let of = Key { namespace: key.namespace.clone(), name: names::job_version_name(&key.name, number) };
        let version = store
            .get(World::kind("JobVersion")?, &of)
            .with_context(|| format!("revert job {key}: version {number} is not kept any more"))?;
        let mut object = stored.value.clone();
        object["spec"] = version.value["spec"]["job"].clone();
        self.done(Verb::Update, store.replace(kind, object, self.caller()))
    }

    /// What an operator does to a volume.
    pub(super) fn act_on_volume(&self, step: &VolumeStep) -> anyhow::Result<()> {
        let key = Key { namespace: Some(step.namespace.clone()), name: step.name.clone() };
        match step.action {
            VolumeAction::Deregister if !step.force => self.remove(World::kind("CSIVolume")?, &key),
            VolumeAction::Deregister => {
                self.annotate_volume(&key, annotation::DEREGISTER, "force")?;
                self.remove(World::kind("CSIVolume")?, &key)
            }
            VolumeAction::Detach => {
                let node = step.node.as_deref().with_context(|| format!("volume {key}: detach needs a node"))?;
                let (kind, name) = (World::kind("CSIVolume")?, annotation::FORCE_RELEASE);
                let stored = self.world.store.get(kind, &key);
                let known = stored.and_then(|it| it.value["metadata"]["annotations"][name].as_str().map(str::to_owned));
                self.annotate_volume(&key, name, &annotation::with_node(known.as_deref(), node))
            }
        }
    }

    fn annotate_volume(&self, key: &Key, name: &str, value: &str) -> anyhow::Result<()> {
        let (store, kind) = (&self.world.store, World::kind("CSIVolume")?);
        let stored = store.get(kind, key).with_context(|| format!("csivolumes {:?} not found", key.name))?;
        let mut object = stored.value.clone();
        object["metadata"]["annotations"][name] = value.into();
        self.done(Verb::Update, store.replace(kind, object, self.caller()))
    }
}

/// A job as it is stored.
fn typed(stored: &Stored) -> Option<Job> {
    serde_json::from_value(stored.value.clone()).ok()
}

fn end_tasks(machine: &Machine, alloc: &Allocation, step: &AllocStep, end: SimulatedEnd) -> anyhow::Result<()> {
    let uid = alloc.metadata.uid.as_deref().unwrap_or_default();
    let states = alloc.status.iter().flat_map(|status| status.task_states.keys());
    let all: Vec<&String> = states.filter(|name| step.task.as_ref().is_none_or(|task| task == *name)).collect();
    let ended = all.iter().filter(|task| machine.end_task(uid, task, end)).count();
    let name = alloc.metadata.name.as_deref().unwrap_or_default();
    ensure!(ended > 0, "allocation {name}: none of its tasks {all:?} runs");
    Ok(())
}
