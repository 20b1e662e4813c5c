//! Scenarios: what a file says, with every key checked.
//!
//! Input: YAML. Output: a [`Scenario`] with expanded names. A mistyped key is an error with its line and the closest
//! valid key. Must never know how a step is carried out.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use drover_api::GoDuration;
use drover_api::allocation::{ClientStatus, DesiredStatus};
use drover_api::client_node::{CsiInfo, DeviceGroup, Eligibility, NodePhase, OfferedVolume};
use drover_api::csi_volume::PluginType;
use drover_api::deployment::{DeploymentDescription, DeploymentPhase};
use drover_api::job::JobPhase;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::expand;
use drover_agent::simulated::PluginSpec;

/// A whole scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScenarioManifest {
    api_version: String,
    kind: String,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata {
    name: String,
    #[serde(default, rename = "labels")]
    _labels: BTreeMap<String, String>,
    #[serde(default, rename = "annotations")]
    _annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    #[serde(default)]
    start_time: Option<Timestamp>,
    duration: GoDuration,
    #[serde(default)]
    faults: Faults,
    #[serde(default)]
    config: Option<Value>,
    #[serde(default)]
    nodes: Vec<NodeSpec>,
    #[serde(default)]
    steps: Vec<StepFile>,
}

/// A scenario, ready to run.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    /// Its name.
    pub(super) name: String,
    /// When virtual time begins.
    pub(super) start_time: Timestamp,
    /// When the run ends.
    pub(super) duration: Duration,
    /// How often what goes wrong.
    pub(super) faults: Faults,
    /// Settings of the controller, as in its file; none: the defaults.
    pub(super) config: Option<Value>,
    /// The nodes.
    pub(super) nodes: Vec<NodeSpec>,
    /// What happens, in order.
    pub(super) steps: Vec<Step>,
}

/// Probabilities of faults, each from 0 to 1.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Faults {
    /// A request is refused, or its answer is lost.
    pub(super) api_errors: f64,
    /// A watch breaks, comes late or says something twice, for each event.
    pub(super) watch_drops: f64,
    /// The list with which a watch begins is old.
    pub(super) stale_reads: f64,
    /// The controller crashes, for each of its writes, or an agent, for each of its own and of those to its state.
    pub(super) crash_between_writes: f64,
    /// How long anything goes wrong by chance; default: until 10 minutes before the end, so that all can settle.
    until: Option<GoDuration>,
}

/// A node, or a range of them.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NodeSpec {
    pub(super) name: String,
    #[serde(default = "default_datacenter")]
    pub(super) datacenter: String,
    #[serde(default = "default_pool")]
    pub(super) node_pool: String,
    #[serde(default)]
    pub(super) node_class: String,
    #[serde(default)]
    pub(super) resources: NodeResources,
    #[serde(default)]
    pub(super) attributes: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) meta: BTreeMap<String, String>,
    #[serde(default = "default_drivers")]
    pub(super) drivers: Vec<String>,
    #[serde(default)]
    pub(super) devices: Vec<DeviceGroup>,
    #[serde(default)]
    pub(super) host_volumes: BTreeMap<String, OfferedVolume>,
    #[serde(default)]
    pub(super) csi_plugins: Vec<CsiPlugin>,
    /// It is powered off until a `boot`.
    #[serde(default)]
    pub(super) off: bool,
}

/// What a node offers.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct NodeResources {
    pub(super) cpu: i64,
    #[serde(rename = "memoryMB")]
    pub(super) memory_mb: i64,
    #[serde(rename = "diskMB")]
    pub(super) disk_mb: i64,
    pub(super) cores: i64,
}

impl Default for NodeResources {
    fn default() -> Self {
        Self { cpu: 4000, memory_mb: 8192, disk_mb: 100_000, cores: 4 }
    }
}

/// A storage plugin on a node.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CsiPlugin {
    pub(super) id: String,
    #[serde(default)]
    pub(super) controller: bool,
    #[serde(default)]
    pub(super) node: bool,
    #[serde(default)]
    pub(super) max_volumes: i64,
    #[serde(default)]
    pub(super) topology: BTreeMap<String, String>,
    /// How long a call takes.
    #[serde(default)]
    pub(super) delay: Option<GoDuration>,
    /// How many of all calls fail, between 0 and 1.
    #[serde(default)]
    pub(super) errors: f64,
}

impl CsiPlugin {
    /// Which halves run.
    pub(super) fn part(&self) -> PluginType {
        match (self.controller, self.node) {
            (true, true) => PluginType::Monolith,
            (true, false) => PluginType::Controller,
            (false, _) => PluginType::Node,
        }
    }

    /// As the node says it. A plugin that has a controller on any node needs one everywhere.
    pub(super) fn spec(&self, node: &str, has_controller: bool) -> PluginSpec {
        let can = ["CREATE_DELETE_VOLUME", "PUBLISH_UNPUBLISH_VOLUME", "EXPAND_VOLUME"];
        let info = CsiInfo {
            controller: self.controller,
            node: self.node,
            healthy: true,
            requires_controller_plugin: has_controller,
            max_volumes: self.max_volumes,
            node_id: node.to_owned(),
            topology: self.topology.clone(),
            provider: format!("{}.simulated", self.id),
            capabilities: if self.controller { can.map(str::to_owned).to_vec() } else { Vec::new() },
            ..CsiInfo::default()
        };
        let delay = self.delay.map_or(Duration::from_millis(50), GoDuration::to_std);
        PluginSpec { id: self.id.clone(), info, delay, errors: self.errors }
    }
}

fn default_datacenter() -> String {
    "dc1".to_owned()
}

fn default_pool() -> String {
    "default".to_owned()
}

fn default_drivers() -> Vec<String> {
    vec!["mock".to_owned()]
}

fn default_namespace() -> String {
    "default".to_owned()
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StepFile {
    at: GoDuration,
    #[serde(default)]
    refused: Option<String>,
    #[serde(default)]
    apply: Option<Vec<Value>>,
    #[serde(default)]
    delete: Option<ObjectName>,
    #[serde(default)]
    node: Option<NodeStep>,
    #[serde(default)]
    alloc: Option<AllocStep>,
    #[serde(default)]
    checks: Option<ChecksStep>,
    #[serde(default)]
    deployment: Option<DeploymentStep>,
    #[serde(default)]
    job: Option<JobStep>,
    #[serde(default)]
    volume: Option<VolumeStep>,
    #[serde(default)]
    controller: Option<ControllerStep>,
    #[serde(default)]
    api: Option<ApiStep>,
    #[serde(default)]
    expect: Option<Vec<Assertion>>,
    #[serde(default)]
    dump: Option<String>,
}

/// Something that happens at a time.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// When, since the start.
    pub(super) at: Duration,
    /// Its number, from 0.
    pub(super) number: usize,
    /// The text that the refusal must contain, where one is expected.
    pub(super) refused: Option<String>,
    /// What.
    pub(super) action: Action,
}

/// What happens.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Apply(Vec<Value>),
    Delete(ObjectName),
    Node(NodeStep),
    Alloc(Box<AllocStep>),
    Checks(Box<ChecksStep>),
    Deployment(DeploymentStep),
    Job(JobStep),
    Volume(VolumeStep),
    Controller(ControllerStep),
    Api(ApiStep),
    Expect(Vec<Assertion>),
    Dump(String),
}

/// An object of any kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ObjectName {
    pub(super) kind: String,
    #[serde(default)]
    pub(super) namespace: Option<String>,
    pub(super) name: String,
}

/// What is done to nodes.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NodeStep {
    pub(super) names: Vec<String>,
    pub(super) action: NodeAction,
    #[serde(default)]
    pub(super) deadline: Option<GoDuration>,
    #[serde(default)]
    pub(super) force: bool,
    #[serde(default)]
    pub(super) ignore_system_jobs: bool,
    #[serde(default)]
    pub(super) mark_eligible: bool,
}

/// What can be done to a node.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(super) enum NodeAction {
    Partition,
    Heal,
    Poweroff,
    Boot,
    RestartAgent,
    Freeze,
    Ineligible,
    Eligible,
    Drain,
    CancelDrain,
    Delete,
}

/// Which allocations.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct AllocFilter {
    #[serde(default)]
    pub(super) namespace: Option<String>,
    #[serde(default)]
    pub(super) job: Option<String>,
    #[serde(default)]
    pub(super) group: Option<String>,
    #[serde(default)]
    pub(super) index: Option<i64>,
    #[serde(default)]
    pub(super) version: Option<i64>,
    #[serde(default)]
    pub(super) node: Option<String>,
    #[serde(default)]
    pub(super) canary: Option<bool>,
    #[serde(default)]
    pub(super) desired_status: Option<DesiredStatus>,
    #[serde(default)]
    pub(super) client_status: Option<ClientStatus>,
    #[serde(default)]
    pub(super) healthy: Option<bool>,
    #[serde(default)]
    pub(super) uid: Option<String>,
}

macro_rules! filtered {
    ($(#[$doc:meta])* $name:ident { $($(#[$attribute:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub(super) struct $name {
            #[serde(default)]
            namespace: Option<String>,
            #[serde(default)]
            job: Option<String>,
            #[serde(default)]
            group: Option<String>,
            #[serde(default)]
            index: Option<i64>,
            #[serde(default)]
            version: Option<i64>,
            #[serde(default)]
            node: Option<String>,
            #[serde(default)]
            canary: Option<bool>,
            #[serde(default)]
            desired_status: Option<DesiredStatus>,
            #[serde(default)]
            client_status: Option<ClientStatus>,
            #[serde(default)]
            healthy: Option<bool>,
            #[serde(default)]
            uid: Option<String>,
            $($(#[$attribute])* pub(super) $field: $type,)*
        }

        impl $name {
            /// Which allocations it is about.
            pub(super) fn filter(&self) -> AllocFilter {
                AllocFilter {
                    namespace: self.namespace.clone(),
                    job: self.job.clone(),
                    group: self.group.clone(),
                    index: self.index,
                    version: self.version,
                    node: self.node.clone(),
                    canary: self.canary,
                    desired_status: self.desired_status,
                    client_status: self.client_status,
                    healthy: self.healthy,
                    uid: self.uid.clone(),
                }
            }
        }
    };
}

filtered! {
    /// What is done to allocations. (The keys of the filter stand beside the others, which keeps their lines in
    /// errors.)
    AllocStep {
        action: AllocAction,
        #[serde(default)]
        newest: bool,
        #[serde(default)]
        task: Option<String>,
        #[serde(default)]
        exit_code: Option<i32>,
        #[serde(default)]
        signal: Option<String>,
    }
}

filtered! {
    /// What the checks of allocations find from now on.
    ChecksStep {
        action: ChecksAction,
        #[serde(default, rename = "for")]
        lasts: Option<GoDuration>,
        /// How often what flaps is drawn again.
        #[serde(default)]
        every: Option<GoDuration>,
    }
}

/// What checks can find.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(super) enum ChecksAction {
    Fail,
    /// Nothing answers.
    Silence,
    /// Now this, now that.
    Flap,
    Mend,
}

filtered! {
    /// How many allocations there are.
    AllocCount {
        #[serde(default)]
        count: Option<usize>,
        #[serde(default)]
        min: Option<usize>,
        #[serde(default)]
        max: Option<usize>,
    }
}

/// What can be done to an allocation.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(super) enum AllocAction {
    Fail,
    Complete,
    OomKill,
    Restart,
    RestartAll,
    Stop,
    Signal,
    SetHealthy,
    SetUnhealthy,
    Delete,
}

/// What is done to a job's newest deployment.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DeploymentStep {
    pub(super) job: String,
    #[serde(default = "default_namespace")]
    pub(super) namespace: String,
    pub(super) action: DeploymentAction,
    #[serde(default)]
    pub(super) groups: Vec<String>,
}

/// What can be done to a deployment.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(super) enum DeploymentAction {
    Promote,
    Pause,
    Resume,
    Fail,
}

/// What is done to a job.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct JobStep {
    pub(super) name: String,
    #[serde(default = "default_namespace")]
    pub(super) namespace: String,
    pub(super) action: JobAction,
    #[serde(default)]
    pub(super) group: Option<String>,
    #[serde(default)]
    pub(super) count: Option<i64>,
    #[serde(default)]
    pub(super) version: Option<i64>,
    #[serde(default)]
    pub(super) payload: Option<String>,
    #[serde(default)]
    pub(super) meta: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) token: Option<String>,
}

/// What can be done to a job.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(super) enum JobAction {
    Stop,
    Start,
    Scale,
    Revert,
    Dispatch,
    PeriodicForce,
    Delete,
}

/// What is done to a volume.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct VolumeStep {
    pub(super) name: String,
    #[serde(default = "default_namespace")]
    pub(super) namespace: String,
    pub(super) action: VolumeAction,
    #[serde(default)]
    pub(super) node: Option<String>,
    #[serde(default)]
    pub(super) force: bool,
}

/// What can be done to a volume.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(super) enum VolumeAction {
    Detach,
    Deregister,
}

/// What is done to the controller.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ControllerStep {
    pub(super) action: ControllerAction,
    #[serde(default, rename = "for")]
    pub(super) lasts: Option<GoDuration>,
}

/// What can be done to the controller.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(super) enum ControllerAction {
    Crash,
    SecondLeader,
    /// Its watch of Leases stays silent, while everything else works.
    BreakLeaseWatch,
    /// Its clock jumps ahead.
    ClockStep,
}

/// What is done to the API server.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ApiStep {
    pub(super) action: ApiAction,
    #[serde(default, rename = "for")]
    pub(super) lasts: Option<GoDuration>,
    #[serde(default)]
    pub(super) latency: Option<GoDuration>,
    #[serde(default)]
    pub(super) rate: Option<f64>,
}

/// What can be done to the API server.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(super) enum ApiAction {
    Outage,
    Slow,
    Conflicts,
}

/// Something that must hold. Exactly one field is set.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Assertion {
    #[serde(default)]
    pub(super) allocs: Option<AllocCount>,
    #[serde(default)]
    pub(super) job: Option<JobAssertion>,
    #[serde(default)]
    pub(super) deployment: Option<DeploymentAssertion>,
    #[serde(default)]
    pub(super) node: Option<NodeAssertion>,
    #[serde(default)]
    pub(super) volume: Option<VolumeAssertion>,
    #[serde(default)]
    pub(super) endpoints: Option<EndpointsAssertion>,
    #[serde(default)]
    pub(super) never: Option<Never>,
    #[serde(default)]
    pub(super) writes: Option<Writes>,
}

/// A job's status.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct JobAssertion {
    pub(super) name: String,
    #[serde(default = "default_namespace")]
    pub(super) namespace: String,
    #[serde(default)]
    pub(super) exists: Option<bool>,
    #[serde(default)]
    pub(super) phase: Option<JobPhase>,
    #[serde(default)]
    pub(super) version: Option<i64>,
    #[serde(default)]
    pub(super) stable: Option<bool>,
    #[serde(default)]
    pub(super) condition: Option<ConditionAssertion>,
    #[serde(default)]
    pub(super) summary: BTreeMap<String, BTreeMap<String, i64>>,
}

/// A condition.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ConditionAssertion {
    pub(super) r#type: String,
    #[serde(default)]
    pub(super) status: Option<String>,
    #[serde(default)]
    pub(super) reason: Option<String>,
}

/// The status of a job's newest deployment, or of that of a version.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DeploymentAssertion {
    pub(super) job: String,
    #[serde(default = "default_namespace")]
    pub(super) namespace: String,
    #[serde(default)]
    pub(super) version: Option<i64>,
    #[serde(default)]
    pub(super) exists: Option<bool>,
    #[serde(default)]
    pub(super) phase: Option<DeploymentPhase>,
    #[serde(default)]
    pub(super) description: Option<DeploymentDescription>,
    #[serde(default)]
    pub(super) groups: BTreeMap<String, BTreeMap<String, Value>>,
}

/// A node's status.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NodeAssertion {
    pub(super) name: String,
    #[serde(default)]
    pub(super) exists: Option<bool>,
    #[serde(default)]
    pub(super) phase: Option<NodePhase>,
    #[serde(default)]
    pub(super) eligibility: Option<Eligibility>,
    #[serde(default)]
    pub(super) draining: Option<bool>,
}

/// A volume's status.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct VolumeAssertion {
    pub(super) name: String,
    #[serde(default = "default_namespace")]
    pub(super) namespace: String,
    #[serde(default)]
    pub(super) claims: Option<ClaimCounts>,
    #[serde(default)]
    pub(super) schedulable: Option<bool>,
    #[serde(default)]
    pub(super) capacity: Option<String>,
}

/// What is found below a Service.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct EndpointsAssertion {
    pub(super) service: String,
    #[serde(default = "default_namespace")]
    pub(super) namespace: String,
    #[serde(default)]
    pub(super) ready: Option<usize>,
    #[serde(default)]
    pub(super) not_ready: Option<usize>,
}

/// Claims of a volume, counted.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimCounts {
    #[serde(default)]
    pub(super) read: Option<usize>,
    #[serde(default)]
    pub(super) write: Option<usize>,
    #[serde(default)]
    pub(super) past: Option<usize>,
}

/// What must not have been at any instant so far.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Never {
    pub(super) allocs: AllocCount,
}

/// How many writes there were.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Writes {
    pub(super) kind: String,
    pub(super) max: u64,
}

/// When virtual time begins where a scenario does not say.
const START: &str = "2026-01-01T00:00:00Z";

impl Scenario {
    /// Reads a scenario.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let file: ScenarioManifest =
            serde_saphyr::from_str(text).map_err(|error| anyhow::anyhow!("{}", advise(&error.to_string())))?;
        ensure!(
            file.api_version == drover_api::API_VERSION,
            "apiVersion is {:?}; it must be {:?}",
            file.api_version,
            drover_api::API_VERSION
        );
        ensure!(file.kind == "Scenario", "kind is {:?}; it must be \"Scenario\"", file.kind);
        let spec = file.spec;
        spec.faults.check()?;
        let mut nodes = Vec::new();
        for node in &spec.nodes {
            nodes.extend(expand::items(&node.name, node)?);
        }
        let mut steps = Vec::new();
        for (number, step) in spec.steps.into_iter().enumerate() {
            steps.push(step.finish(number).with_context(|| format!("spec.steps[{number}]"))?);
        }
        steps.sort_by_key(|step| step.at);
        Ok(Self {
            name: file.metadata.name,
            start_time: spec.start_time.map_or_else(|| START.parse().context("the start"), Ok)?,
            duration: spec.duration.to_std(),
            faults: spec.faults,
            config: spec.config,
            nodes,
            steps,
        })
    }
}

/// How long before the end nothing goes wrong by chance any more, where a scenario does not say.
const SETTLE: Duration = Duration::from_mins(10);

impl Scenario {
    /// When the last step is.
    pub(super) fn last_step(&self) -> Duration {
        self.steps.iter().map(|step| step.at).max().unwrap_or_default()
    }

    /// Whether anything is to be found by name. Where nothing is, the nodes need none of what Kubernetes knows of them.
    pub(super) fn has_services(&self) -> bool {
        self.steps.iter().any(|step| match &step.action {
            Action::Apply(manifests) => manifests.iter().any(names_services),
            _ => false,
        })
    }

    /// When nothing goes wrong by chance any more.
    pub(super) fn faults_until(&self) -> Duration {
        self.faults.until.map_or_else(|| self.duration.saturating_sub(SETTLE), GoDuration::to_std)
    }
}

/// Whether a list of services stands anywhere in it.
fn names_services(manifest: &Value) -> bool {
    match manifest {
        Value::Array(items) => items.iter().any(names_services),
        Value::Object(fields) => fields.contains_key("services") || fields.values().any(names_services),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

impl Faults {
    fn check(&self) -> anyhow::Result<()> {
        let all = [
            ("apiErrors", self.api_errors),
            ("watchDrops", self.watch_drops),
            ("staleReads", self.stale_reads),
            ("crashBetweenWrites", self.crash_between_writes),
        ];
        for (name, value) in all {
            ensure!((0.0..=1.0).contains(&value), "spec.faults.{name} is {value}; it must be between 0 and 1");
        }
        Ok(())
    }

    /// Whether anything goes wrong by chance.
    pub(super) fn is_any(&self) -> bool {
        self.api_errors + self.watch_drops + self.stale_reads + self.crash_between_writes > 0.0
    }
}

impl StepFile {
    fn finish(self, number: usize) -> anyhow::Result<Step> {
        let mut found = Vec::new();
        found.extend(self.apply.map(Action::Apply));
        found.extend(self.delete.map(Action::Delete));
        if let Some(mut node) = self.node {
            node.names = expand::names(&node.names)?;
            found.push(Action::Node(node));
        }
        found.extend(self.alloc.map(|alloc| Action::Alloc(Box::new(alloc))));
        found.extend(self.checks.map(|checks| Action::Checks(Box::new(checks))));
        found.extend(self.deployment.map(Action::Deployment));
        found.extend(self.job.map(Action::Job));
        found.extend(self.volume.map(Action::Volume));
        found.extend(self.controller.map(Action::Controller));
        found.extend(self.api.map(Action::Api));
        if let Some(assertions) = self.expect {
            for (n, assertion) in assertions.iter().enumerate() {
                assertion.check().with_context(|| format!("expect[{n}]"))?;
            }
            found.push(Action::Expect(assertions));
        }
        found.extend(self.dump.map(Action::Dump));
        let count = found.len();
        let (Some(action), 1) = (found.pop(), count) else {
            bail!(
                "has {count} actions; give exactly one of apply, delete, node, alloc, checks, deployment, job, volume, controller, api, expect, dump"
            );
        };
        Ok(Step { at: self.at.to_std(), number, refused: self.refused, action })
    }
}

impl Assertion {
    fn check(&self) -> anyhow::Result<()> {
        let set = [
            self.allocs.is_some(),
            self.job.is_some(),
            self.deployment.is_some(),
            self.node.is_some(),
            self.volume.is_some(),
            self.endpoints.is_some(),
            self.never.is_some(),
            self.writes.is_some(),
        ];
        let count = set.iter().filter(|is_set| **is_set).count();
        ensure!(
            count == 1,
            "has {count} assertions; give exactly one of allocs, job, deployment, node, volume, endpoints, never, writes"
        );
        if let Some(counted) = &self.allocs {
            let has_bound = counted.count.is_some() || counted.min.is_some() || counted.max.is_some();
            ensure!(has_bound, "allocs asserts nothing; add count, min or max");
        }
        if let Some(never) = &self.never {
            ensure!(never.allocs.max.is_some(), "never.allocs needs max: the most that was ever allowed at once");
        }
        Ok(())
    }
}

/// An error of the parser, with the closest valid key where one is unknown.
fn advise(error: &str) -> String {
    for start in ["unknown field `", "unknown variant `"] {
        let Some(at) = error.find(start) else { continue };
        // The message is one line; what follows shows the place.
        let message = error[at + start.len()..].lines().next().unwrap_or_default();
        let Some((name, rest)) = message.split_once('`') else { continue };
        let Some((_, known)) = rest.split_once("expected ") else { continue };
        let known = known.trim_start_matches("one of ").split(", ").flat_map(|part| part.split(" or "));
        if let Some(near) = drover_store::memory::closest(name, known.map(|word| word.trim_matches('`'))) {
            return format!("{error}\ndid you mean `{near}` instead of `{name}`?");
        }
    }
    error.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: drover.dev/v1alpha1\nkind: Scenario\nmetadata: {name: t}\nspec:\n";

    fn error(spec: &str) -> String {
        format!("{:#}", Scenario::parse(&format!("{HEAD}{spec}")).unwrap_err())
    }

    #[test]
    fn a_mistyped_key_is_named_with_its_line_and_the_closest_one() {
        for (spec, line, wrong, near) in [
            ("  duratoin: 1m\n", 5, "duratoin", "duration"),
            ("  duration: 1m\n  nodes:\n  - {name: n, nodepool: x}\n", 7, "nodepool", "nodePool"),
            (
                "  duration: 1m\n  steps:\n  - {at: 1s, node: {names: [n], action: partiton}}\n",
                7,
                "partiton",
                "partition",
            ),
            (
                "  duration: 1m\n  steps:\n  - at: 1s\n    expect:\n    - {allocs: {jop: web, count: 1}}\n",
                9,
                "jop",
                "job",
            ),
        ] {
            let error = error(spec);
            assert!(error.contains(&format!("did you mean `{near}` instead of `{wrong}`?")), "{error}");
            assert!(error.contains(&format!("line {line}")), "{error}");
        }
    }

    #[test]
    fn a_step_does_exactly_one_thing() {
        let error = error("  duration: 1m\n  steps:\n  - {at: 1s}\n");
        assert!(error.contains("spec.steps[0]: has 0 actions"), "{error}");
    }

    #[test]
    fn steps_are_in_the_order_of_their_times() {
        let text = format!(
            "{HEAD}  duration: 1m\n  steps:\n  - {{at: 9s, dump: b}}\n  - {{at: 1s, dump: a}}\n  - {{at: 9s, dump: c}}\n"
        );
        let scenario = Scenario::parse(&text).unwrap();
        assert_eq!(scenario.steps.iter().map(|step| step.number).collect::<Vec<_>>(), [1, 0, 2]);
    }
}
