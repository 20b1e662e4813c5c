//! A task's environment and the interpolation of `${…}`.
//!
//! Input: the allocation, its job, the node's facts and the task's directories. Output: text, or the field that is at
//! fault. Pure; must never read the process's own environment: the host's part of it is passed in.
//!
//! Expansion is bounded: what was put in the place of a reference is not looked at again, one expanded value has at
//! most [`MAX_VALUE_BYTES`], and all that a task is started with at most [`MAX_TOTAL_BYTES`]. A value may name one that
//! was expanded before, so that without bounds five lines of a job would fill the memory of every node that gets it.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::allocation::{AllocatedPort, NetworkStatus};
use drover_api::group::Group;
use drover_api::task::Task;
use drover_api::{Allocation, JobSpec};

use crate::node::reference::{self, NodeReferences};

/// What constraints and interpolation know of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its name, which is its id too.
    pub name: String,
    /// Its datacenter.
    pub datacenter: String,
    /// Its class.
    pub class: String,
    /// Its pool.
    pub pool: String,
    /// Its attributes.
    pub attributes: BTreeMap<String, String>,
    /// Its effective metadata.
    pub meta: BTreeMap<String, String>,
    /// The control group that holds its tasks; empty where there is none.
    pub cgroup_parent: String,
}

impl NodeFacts {
    fn references(&self) -> NodeReferences<'_> {
        NodeReferences {
            name: &self.name,
            datacenter: &self.datacenter,
            class: &self.class,
            pool: &self.pool,
            attributes: &self.attributes,
            meta: &self.meta,
        }
    }
}

/// What a node tells of itself, by the names of its references without `${` and `}`, as `attr.kernel.name`.
pub fn words_of_node(node: &NodeFacts) -> BTreeMap<String, String> {
    let named = ["node.unique.id", "node.unique.name", "node.datacenter", "node.class", "node.pool", "node.region"];
    let attributes = node.attributes.keys().map(|key| format!("attr.{key}"));
    let meta = node.meta.keys().map(|key| format!("meta.{key}"));
    let no_variables = BTreeMap::new();
    let word = |name: String| lookup(&name, &no_variables, node).map(str::to_owned).map(|value| (name, value));
    named.map(str::to_owned).into_iter().chain(attributes).chain(meta).filter_map(word).collect()
}

/// The directories as the task sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskPaths {
    /// Shared by the allocation's tasks.
    pub alloc: String,
    /// The task's own.
    pub local: String,
    /// For secrets.
    pub secrets: String,
}

/// What an environment is made from.
#[derive(Clone, Copy, Debug)]
pub struct EnvironmentInput<'a> {
    /// The allocation.
    pub allocation: &'a Allocation,
    /// Its job.
    pub job: &'a JobSpec,
    /// Its group.
    pub group: &'a Group,
    /// The task.
    pub task: &'a Task,
    /// The node.
    pub node: &'a NodeFacts,
    /// The directories as the task sees them.
    pub paths: &'a TaskPaths,
    /// What `${secret.<name>.<key>}` stands for, by the reference: [`super::secret::words`].
    pub secrets: &'a BTreeMap<String, String>,
    /// The host's variables that tasks may get; none for images.
    pub host: &'a BTreeMap<String, String>,
    /// The allocation's own network, once it is made; none: it has none.
    pub network: Option<&'a NetworkStatus>,
}

/// The most bytes of one expanded value: as many as the kernel takes of one argument.
pub const MAX_VALUE_BYTES: usize = 128 * 1024;
/// The most bytes of all expanded values of a task: its environment with the names, and its driver's settings.
pub const MAX_TOTAL_BYTES: usize = 1024 * 1024;

/// Why a task's fields are not expanded. Each names the field, as `meta.owner` or `config.args[2]`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpansionError {
    /// A value has become too long.
    #[error(
        "{0}: with its references expanded it has more than {MAX_VALUE_BYTES} bytes, which no setting allows: take \
         references out of it, or give long text in a file of a volume"
    )]
    TooLong(String),
    /// All values together have become too long.
    #[error(
        "{0}: with it the task's environment and config have more than {MAX_TOTAL_BYTES} bytes, which no setting \
         allows: take references out of them, or give long text in a file of a volume"
    )]
    TooMuch(String),
    /// A reference to nothing that is known.
    #[error("{0}: {1} is not known: check its spelling")]
    Unknown(String, String),
}

/// What a task may still be given.
#[derive(Clone, Copy, Debug)]
struct Budget {
    left: usize,
}

impl Budget {
    const WHOLE: Self = Self { left: MAX_TOTAL_BYTES };

    fn take(&mut self, bytes: usize, field: impl FnOnce() -> String) -> Result<(), ExpansionError> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(ExpansionError::TooMuch(field())),
        }
    }
}

/// Variables of the host that no task gets.
const HOST_DENYLIST: &[&str] = &[
    "NOMAD_TOKEN",
    "NOMAD_LICENSE",
    "NOMAD_LICENSE_PATH",
    "CONSUL_TOKEN",
    "CONSUL_HTTP_TOKEN",
    "CONSUL_HTTP_TOKEN_FILE",
    "CONSUL_LICENSE",
    "CONSUL_LICENSE_PATH",
    "VAULT_TOKEN",
    "VAULT_LICENSE",
    "VAULT_LICENSE_PATH",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_METADATA_URL",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_OAUTH_ACCESS_TOKEN",
    "KUBECONFIG",
];

/// Whether a variable of the host may reach tasks.
pub fn is_host_variable_permitted(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    !HOST_DENYLIST.contains(&name)
        && !upper.starts_with("KUBERNETES_")
        && !upper.contains("SERVICEACCOUNT")
        && !upper.contains("SERVICE_ACCOUNT")
}

/// Builds the whole environment: built-in variables, meta, the host's, the task's own. Later ones win, the host's
/// never.
///
/// # Errors
/// When a value, or all of them, would be too long.
pub fn environment(input: &EnvironmentInput<'_>) -> Result<BTreeMap<String, String>, ExpansionError> {
    let mut env = BTreeMap::new();
    add_paths_and_limits(&mut env, input);
    add_identity(&mut env, input);
    add_ports(&mut env, &input.allocation.spec.resources.ports);
    add_network(&mut env, &input.allocation.spec.resources.ports, input.network);
    let mut budget = Budget::WHOLE;
    budget.take(size(&env), || "resources.ports".to_owned())?;
    // References are looked up among variables; these become none, for no variable's name begins so.
    env.extend(input.secrets.iter().map(|(name, value)| (name.clone(), value.clone())));
    add_meta(&mut env, input, &mut budget)?;
    for (name, value) in input.host {
        if is_host_variable_permitted(name) && !env.contains_key(name) {
            budget.take(name.len() + value.len(), || format!("the node's variable {name}"))?;
            env.insert(name.clone(), value.clone());
        }
    }
    let mut own = Vec::with_capacity(input.task.env.len());
    for (name, value) in &input.task.env {
        let field = || format!("env.{name}");
        let value = interpolate(value, &env, input.node).map_err(|_| ExpansionError::TooLong(field()))?;
        budget.take(name.len() + value.len(), field)?;
        own.push((clean(name), value));
    }
    env.retain(|name, _| !input.secrets.contains_key(name));
    env.extend(own);
    Ok(env)
}

/// What the fields of a service may refer to: the allocation, its job and group, its ports and meta; `task` is the one
/// that the service is of. References to the node stay as they are written, because the controller reads names from the
/// version of the job alone.
///
/// # Errors
/// When a value of meta, or all of them, would be too long.
pub fn service_words(
    allocation: &Allocation,
    job: &JobSpec,
    group: &Group,
    task: Option<&Task>,
) -> Result<BTreeMap<String, String>, ExpansionError> {
    let mut env = BTreeMap::new();
    let Some(any) = task.or(group.tasks.first()) else { return Ok(env) };
    let nameless;
    let task = if let Some(task) = task {
        task
    } else {
        nameless = Task { name: String::new(), meta: BTreeMap::default(), ..any.clone() };
        &nameless
    };
    let paths = TaskPaths { alloc: String::new(), local: String::new(), secrets: String::new() };
    let (node, host) = (NodeFacts::default(), BTreeMap::new());
    let secrets = BTreeMap::new();
    let input = EnvironmentInput {
        allocation,
        job,
        group,
        task,
        node: &node,
        paths: &paths,
        secrets: &secrets,
        host: &host,
        network: None,
    };
    add_identity(&mut env, &input);
    for of_node in ["NOMAD_DC", "NOMAD_PARENT_CGROUP"] {
        env.remove(of_node);
    }
    if task.name.is_empty() {
        env.remove("NOMAD_TASK_NAME");
    }
    add_ports(&mut env, &allocation.spec.resources.ports);
    let mut budget = Budget::WHOLE;
    budget.take(size(&env), || "resources.ports".to_owned())?;
    add_meta(&mut env, &input, &mut budget)?;
    Ok(env)
}

fn size(env: &BTreeMap<String, String>) -> usize {
    env.iter().map(|(name, value)| name.len() + value.len()).sum()
}

fn add_paths_and_limits(env: &mut BTreeMap<String, String>, input: &EnvironmentInput<'_>) {
    put(env, "NOMAD_ALLOC_DIR", &input.paths.alloc);
    put(env, "NOMAD_TASK_DIR", &input.paths.local);
    put(env, "NOMAD_SECRETS_DIR", &input.paths.secrets);
    let Some(resources) = input.allocation.spec.resources.tasks.get(&input.task.name) else { return };
    put(env, "NOMAD_MEMORY_LIMIT", &resources.memory_mb.to_string());
    if resources.memory_max_mb > 0 {
        put(env, "NOMAD_MEMORY_MAX_LIMIT", &resources.memory_max_mb.to_string());
    }
    put(env, "NOMAD_CPU_LIMIT", &resources.cpu.to_string());
    put(env, "NOMAD_CPU_CORES", &core_list(&resources.cores));
}

fn add_identity(env: &mut BTreeMap<String, String>, input: &EnvironmentInput<'_>) {
    let (alloc, job) = (input.allocation, input.job);
    let id = alloc.metadata.uid.clone().unwrap_or_default();
    let job_id = job.id_or(&alloc.spec.job_name);
    let job_name = if job.name.is_empty() { job_id } else { &job.name };
    put(env, "NOMAD_SHORT_ALLOC_ID", id.get(..8).unwrap_or(&id));
    put(env, "NOMAD_ALLOC_ID", &id);
    put(env, "NOMAD_ALLOC_NAME", &format!("{job_id}.{}[{}]", alloc.spec.group, alloc.spec.index));
    put(env, "NOMAD_ALLOC_INDEX", &alloc.spec.index.to_string());
    put(env, "NOMAD_TASK_NAME", &input.task.name);
    put(env, "NOMAD_GROUP_NAME", &input.group.name);
    put(env, "NOMAD_JOB_ID", job_id);
    put(env, "NOMAD_JOB_NAME", job_name);
    if let Some(parent) = crate::dispatch::parent_id(job) {
        put(env, "NOMAD_JOB_PARENT_ID", parent);
    }
    put(env, "NOMAD_DC", &input.node.datacenter);
    put(env, "NOMAD_REGION", if job.region.is_empty() { "global" } else { &job.region });
    if !input.node.cgroup_parent.is_empty() {
        put(env, "NOMAD_PARENT_CGROUP", &input.node.cgroup_parent);
    }
    put(env, "NOMAD_NAMESPACE", alloc.metadata.namespace.as_deref().unwrap_or("default"));
}

fn add_ports(env: &mut BTreeMap<String, String>, ports: &[AllocatedPort]) {
    for port in ports {
        let label = clean(&port.label);
        let inside = port_inside(port);
        let address = address(&port.host_ip, port.value);
        put(env, &format!("NOMAD_IP_{label}"), &port.host_ip);
        put(env, &format!("NOMAD_PORT_{label}"), &inside.to_string());
        put(env, &format!("NOMAD_ADDR_{label}"), &address);
        put(env, &format!("NOMAD_HOST_IP_{label}"), &port.host_ip);
        put(env, &format!("NOMAD_HOST_PORT_{label}"), &port.value.to_string());
        put(env, &format!("NOMAD_HOST_ADDR_{label}"), &address);
        put(env, &format!("NOMAD_ALLOC_PORT_{label}"), &inside.to_string());
    }
}

/// Where the ports are within the allocation's own network.
fn add_network(env: &mut BTreeMap<String, String>, ports: &[AllocatedPort], network: Option<&NetworkStatus>) {
    let Some(network) = network else { return };
    let ip = if network.address.is_empty() { &network.address_v6 } else { &network.address };
    for port in ports {
        let label = clean(&port.label);
        put(env, &format!("NOMAD_ALLOC_INTERFACE_{label}"), &network.interface_name);
        put(env, &format!("NOMAD_ALLOC_IP_{label}"), ip);
        put(env, &format!("NOMAD_ALLOC_ADDR_{label}"), &address(ip, port_inside(port)));
    }
}

/// The number that a task listens on.
pub(crate) fn port_inside(port: &AllocatedPort) -> i64 {
    if port.to > 0 { port.to } else { port.value }
}

/// The job's meta, overridden by the group's and the task's: by the key as it is written, and in the two forms that
/// shells can name.
fn add_meta(
    env: &mut BTreeMap<String, String>,
    input: &EnvironmentInput<'_>,
    budget: &mut Budget,
) -> Result<(), ExpansionError> {
    let mut meta = BTreeMap::new();
    for level in [&input.job.meta, &input.group.meta, &input.task.meta] {
        meta.extend(level.iter());
    }
    for (key, value) in meta {
        let field = || format!("meta.{key}");
        let value = interpolate(value, env, input.node).map_err(|_| ExpansionError::TooLong(field()))?;
        let mut names = BTreeSet::from([clean(&key.to_uppercase()), clean(key)]);
        // A name with a `=` would be read as another one.
        if !key.contains(['=', '\0']) {
            names.insert(key.clone());
        }
        for name in names {
            let name = format!("NOMAD_META_{name}");
            budget.take(name.len() + value.len(), field)?;
            env.insert(name, value.clone());
        }
    }
    Ok(())
}

fn put(env: &mut BTreeMap<String, String>, name: &str, value: &str) {
    env.insert(name.to_owned(), value.to_owned());
}

fn address(ip: &str, port: i64) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

/// Shells drop variables with other characters in their name.
fn clean(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect()
}

/// Core numbers as `0,5-7`.
pub fn core_list(cores: &[i64]) -> String {
    let mut sorted = cores.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    for core in sorted {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == core => *last = core,
            _ => ranges.push((core, core)),
        }
    }
    let text = |(first, last): &(i64, i64)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

/// The value became longer than [`MAX_VALUE_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("with its references expanded it has more than {MAX_VALUE_BYTES} bytes: take references out of it")]
pub struct TooLong;

/// Replaces every `${…}` that is known; others stay as they are written. What was put in is not looked at again.
///
/// # Errors
/// When the result would be longer than [`MAX_VALUE_BYTES`]; no more than that was made of it then.
pub fn interpolate(text: &str, env: &BTreeMap<String, String>, node: &NodeFacts) -> Result<String, TooLong> {
    substitute(text, env, node).map(|(text, _)| text)
}

/// Replaces references in a task's driver settings, nested values included, beside the environment that they are
/// started with.
///
/// # Errors
/// When a reference is not known, or a value, or all of them with the environment, would be too long.
pub fn interpolate_config(
    config: &serde_json::Map<String, serde_json::Value>,
    env: &BTreeMap<String, String>,
    node: &NodeFacts,
) -> Result<serde_json::Map<String, serde_json::Value>, ExpansionError> {
    let mut budget = Budget { left: MAX_TOTAL_BYTES.saturating_sub(size(env)) };
    let fields = Fields { env, node };
    config
        .iter()
        .map(|(name, value)| {
            let field = format!("config.{name}");
            budget.take(name.len(), || field.clone())?;
            Ok((name.clone(), fields.expand(value, &field, &mut budget)?))
        })
        .collect()
}

/// What references in a driver's settings are looked up in.
#[derive(Clone, Copy, Debug)]
struct Fields<'a> {
    env: &'a BTreeMap<String, String>,
    node: &'a NodeFacts,
}

impl Fields<'_> {
    fn expand(
        self,
        value: &serde_json::Value,
        field: &str,
        budget: &mut Budget,
    ) -> Result<serde_json::Value, ExpansionError> {
        use serde_json::Value;
        Ok(match value {
            Value::String(text) => {
                let expanded = substitute(text, self.env, self.node);
                let (text, unknown) = expanded.map_err(|TooLong| ExpansionError::TooLong(field.to_owned()))?;
                if let Some(unknown) = unknown {
                    return Err(ExpansionError::Unknown(field.to_owned(), unknown));
                }
                budget.take(text.len(), || field.to_owned())?;
                Value::String(text)
            }
            Value::Array(items) => {
                let items = items.iter().enumerate();
                let expanded = items.map(|(n, item)| self.expand(item, &format!("{field}[{n}]"), budget));
                Value::Array(expanded.collect::<Result<_, _>>()?)
            }
            Value::Object(fields) => {
                let expanded = fields.iter().map(|(name, inner)| {
                    budget.take(name.len(), || field.to_owned())?;
                    Ok((name.clone(), self.expand(inner, &format!("{field}.{name}"), budget)?))
                });
                Value::Object(expanded.collect::<Result<_, ExpansionError>>()?)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        })
    }
}

/// Replaces every `${…}` that is one of these words; others stay as they are written, those of the node too.
///
/// # Errors
/// When the result would be longer than [`MAX_VALUE_BYTES`]; no more than that was made of it then.
pub fn interpolate_words(text: &str, words: &BTreeMap<String, String>) -> Result<String, TooLong> {
    replaced(text, |name| words.get(name).map(String::as_str)).map(|(text, _)| text)
}

/// The text with its references replaced, and the first that is not known.
fn substitute(
    text: &str,
    env: &BTreeMap<String, String>,
    node: &NodeFacts,
) -> Result<(String, Option<String>), TooLong> {
    replaced(text, |name| lookup(name, env, node))
}

fn replaced<'a>(text: &str, known: impl Fn(&str) -> Option<&'a str>) -> Result<(String, Option<String>), TooLong> {
    let (mut out, mut unknown, mut rest) = (String::new(), None, text);
    while let Some(start) = rest.find("${") {
        let Some(length) = rest[start..].find('}') else { break };
        let reference = &rest[start..=start + length];
        push(&mut out, &rest[..start])?;
        if let Some(value) = known(reference[2..reference.len() - 1].trim()) {
            push(&mut out, value)?;
        } else {
            unknown.get_or_insert_with(|| reference.to_owned());
            push(&mut out, reference)?;
        }
        rest = &rest[start + length + 1..];
    }
    push(&mut out, rest)?;
    Ok((out, unknown))
}

fn push(out: &mut String, more: &str) -> Result<(), TooLong> {
    if out.len() + more.len() > MAX_VALUE_BYTES {
        return Err(TooLong);
    }
    out.push_str(more);
    Ok(())
}

fn lookup<'a>(name: &str, env: &'a BTreeMap<String, String>, node: &'a NodeFacts) -> Option<&'a str> {
    if let Some(key) = name.strip_prefix("env[").and_then(|rest| rest.strip_suffix(']')) {
        return env.get(key.trim_matches('"')).map(String::as_str);
    }
    if name == "node.region" {
        return Some("global");
    }
    let known = reference::value(name, &node.references());
    if known.is_some() {
        return known;
    }
    if reference::is_of_node(name) { None } else { env.get(name).map(String::as_str) }
}

#[cfg(test)]
mod tests {
    mod bounds;
    mod references;
    mod service;
    mod variables;

    use super::*;
    use drover_api::allocation::{AllocatedResources, TaskResources};

    fn node() -> NodeFacts {
        NodeFacts {
            name: "n-1".into(),
            datacenter: "dc1".into(),
            attributes: [("kernel.name".to_owned(), "linux".to_owned())].into(),
            meta: [("x".to_owned(), "1".to_owned())].into(),
            cgroup_parent: "drover.12345678".into(),
            ..NodeFacts::default()
        }
    }

    #[test]
    fn a_nodes_words_are_those_that_its_references_stand_for() {
        let words = words_of_node(&node());
        let shown: Vec<_> = words.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let expected = [
            "attr.kernel.name=linux",
            "meta.x=1",
            "node.class=",
            "node.datacenter=dc1",
            "node.pool=",
            "node.region=global",
            "node.unique.id=n-1",
            "node.unique.name=n-1",
        ];
        assert_eq!(shown, expected);
    }

    fn try_build(
        resources: AllocatedResources,
        job: &JobSpec,
        task: &Task,
        host: &BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, ExpansionError> {
        let mut allocation = Allocation::new("web-api-3-00000000", drover_api::AllocationSpec::default());
        allocation.metadata.uid = Some("12345678-1234".into());
        allocation.metadata.namespace = Some("shop".into());
        allocation.spec.job_name = "web-1".into();
        allocation.spec.group = "api".into();
        allocation.spec.index = 3;
        allocation.spec.resources = resources;
        let paths = TaskPaths { alloc: "/a/alloc".into(), local: "/a/t/local".into(), secrets: "/a/t/secrets".into() };
        let group = Group { name: "api".into(), ..Group::default() };
        environment(&EnvironmentInput {
            allocation: &allocation,
            job,
            group: &group,
            task,
            node: &node(),
            paths: &paths,
            secrets: &BTreeMap::new(),
            host,
            network: None,
        })
    }

    fn build(
        resources: AllocatedResources,
        job: &JobSpec,
        task: &Task,
        host: &BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        try_build(resources, job, task, host).expect("it is within bounds")
    }

    fn task(fields: &serde_json::Value) -> Task {
        let mut task = serde_json::json!({"name": "server", "driver": "raw_exec"});
        for (name, value) in fields.as_object().expect("an object") {
            task[name] = value.clone();
        }
        serde_json::from_value(task).expect("a task")
    }

    #[test]
    fn a_117_meta_and_ports() {
        let ports = vec![AllocatedPort { label: "http".into(), value: 80, to: 8080, host_ip: "10.0.0.1".into() }];
        let resources = AllocatedResources { ports, ..AllocatedResources::default() };
        let job = JobSpec { meta: [("owner".to_owned(), "armon".to_owned())].into(), ..JobSpec::default() };
        let env = build(resources, &job, &task(&serde_json::json!({})), &BTreeMap::new());
        let wanted = [
            ("NOMAD_META_owner", "armon"),
            ("NOMAD_META_OWNER", "armon"),
            ("NOMAD_PORT_http", "8080"),
            ("NOMAD_HOST_PORT_http", "80"),
            ("NOMAD_ADDR_http", "10.0.0.1:80"),
            ("NOMAD_ALLOC_PORT_http", "8080"),
            ("NOMAD_ALLOC_NAME", "web-1.api[3]"),
            ("NOMAD_ALLOC_INDEX", "3"),
            ("NOMAD_SHORT_ALLOC_ID", "12345678"),
            ("NOMAD_NAMESPACE", "shop"),
            ("NOMAD_PARENT_CGROUP", "drover.12345678"),
        ];
        for (name, value) in wanted {
            assert_eq!(env.get(name).map(String::as_str), Some(value), "{name}");
        }
    }

    #[test]
    fn an_own_network_is_told_beside_the_nodes_ports() {
        let port = AllocatedPort { label: "http".into(), value: 80, to: 8080, host_ip: "10.0.0.1".into() };
        let network =
            NetworkStatus { interface_name: "eth0".into(), address: "172.26.64.2".into(), ..NetworkStatus::default() };
        let mut env = BTreeMap::new();
        add_network(&mut env, std::slice::from_ref(&port), Some(&network));
        let told: Vec<_> = env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let wanted = ["ADDR_http=172.26.64.2:8080", "INTERFACE_http=eth0", "IP_http=172.26.64.2"];
        assert_eq!(told, wanted.map(|it| format!("NOMAD_ALLOC_{it}")));
        add_network(&mut BTreeMap::new(), &[port], None);
    }

    #[test]
    fn meta_keeps_its_key_beside_the_names_that_shells_can_use() {
        let meta = [("a-b.c", "1"), ("x=y", "2")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let job = JobSpec { meta: meta.into(), ..JobSpec::default() };
        let env = build(AllocatedResources::default(), &job, &task(&serde_json::json!({})), &BTreeMap::new());
        let of_meta: Vec<(&str, &str)> =
            env.iter().filter_map(|(name, value)| Some((name.strip_prefix("NOMAD_META_")?, value.as_str()))).collect();
        let wanted = [("A_B_C", "1"), ("X_Y", "2"), ("a-b.c", "1"), ("a_b_c", "1"), ("x_y", "2")];
        assert_eq!(of_meta, wanted);
    }

    #[test]
    fn a_task_without_cores_of_its_own_has_an_empty_list_of_them() {
        let resources = AllocatedResources {
            tasks: [("server".to_owned(), TaskResources::default())].into(),
            ..AllocatedResources::default()
        };
        let env = build(resources, &JobSpec::default(), &task(&serde_json::json!({})), &BTreeMap::new());
        assert_eq!(env.get("NOMAD_CPU_CORES").map(String::as_str), Some(""));
    }

    #[test]
    fn a_118_limits() {
        let server =
            TaskResources { cores: vec![7, 0, 5, 6], memory_mb: 256, memory_max_mb: 512, ..TaskResources::default() };
        let resources =
            AllocatedResources { tasks: [("server".to_owned(), server)].into(), ..AllocatedResources::default() };
        let env = build(resources, &JobSpec::default(), &task(&serde_json::json!({})), &BTreeMap::new());
        assert_eq!((env["NOMAD_CPU_CORES"].as_str(), env["NOMAD_MEMORY_LIMIT"].as_str()), ("0,5-7", "256"));
        assert_eq!(env["NOMAD_MEMORY_MAX_LIMIT"], "512");
    }

    #[test]
    fn a_119_unknown_references_stay_in_plain_text() {
        let text = "${attr.kernel.name}-${meta.x}-${nope}";
        assert_eq!(interpolate(text, &BTreeMap::new(), &node()).as_deref(), Ok("linux-1-${nope}"));
        let config = serde_json::json!({ "args": ["x", { "y": text }] });
        let error = interpolate_config(config.as_object().expect("fields"), &BTreeMap::new(), &node());
        let error = error.expect_err("refused").to_string();
        assert_eq!(error, "config.args[1].y: ${nope} is not known: check its spelling");
    }

    #[test]
    fn the_task_wins_over_the_host_and_sees_what_comes_before() {
        let host = BTreeMap::from(
            [("PATH", "/bin"), ("NOMAD_TOKEN", "secret"), ("KUBERNETES_SERVICE_HOST", "x"), ("NOMAD_DC", "other")]
                .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        let task = task(&serde_json::json!({"env": {"WHERE": "${NOMAD_DC}:${node.unique.name}", "a-b": "1"}}));
        let env = build(AllocatedResources::default(), &JobSpec::default(), &task, &host);
        assert_eq!((env["PATH"].as_str(), env["WHERE"].as_str(), env["NOMAD_DC"].as_str()), ("/bin", "dc1:n-1", "dc1"));
        assert_eq!(env["a_b"], "1");
        assert!(!env.contains_key("NOMAD_TOKEN") && !env.contains_key("KUBERNETES_SERVICE_HOST"));
    }

    /// Five levels, each 60 times as long as the one before: 777 million times the first.
    fn levels(reference: impl Fn(usize) -> String) -> BTreeMap<String, String> {
        let value = |level: usize| if level == 0 { "xy".to_owned() } else { reference(level - 1).repeat(60) };
        (0..=5).map(|level| (format!("m{level}"), value(level))).collect()
    }

    #[test]
    fn must_survive_x_008_levels_that_multiply() {
        let none = BTreeMap::new();
        let plain = task(&serde_json::json!({}));
        let job = JobSpec { meta: levels(|level| format!("${{NOMAD_META_m{level}}}")), ..JobSpec::default() };
        let mut error = None;
        let used = allocation_counter::measure(|| {
            error = try_build(AllocatedResources::default(), &job, &plain, &none).err();
        });
        assert_eq!(error, Some(ExpansionError::TooLong("meta.m3".to_owned())));
        assert!(used.bytes_max < 2 * 1024 * 1024, "{used:?}");

        // What comes before may be long, and the task's own variables name it as often as they like.
        let job = JobSpec { meta: [("big".to_owned(), "x".repeat(30_000))].into(), ..JobSpec::default() };
        let env = levels(|level| if level == 2 { "${NOMAD_META_big}".to_owned() } else { String::new() });
        let greedy = task(&serde_json::json!({ "env": env }));
        let error = try_build(AllocatedResources::default(), &job, &greedy, &none);
        assert_eq!(error, Err(ExpansionError::TooLong("env.m3".to_owned())));

        let env: BTreeMap<String, String> =
            (0..40).map(|n| (format!("v{n:02}"), "${NOMAD_META_big}".repeat(4))).collect();
        let many = task(&serde_json::json!({ "env": env }));
        let error = try_build(AllocatedResources::default(), &job, &many, &none).expect_err("refused");
        assert_eq!(error, ExpansionError::TooMuch("env.v08".to_owned()));
        assert!(error.to_string().contains("more than 1048576 bytes"), "{error}");
    }

    #[test]
    fn must_survive_x_008_settings_that_multiply() {
        let env = BTreeMap::from([("BIG".to_owned(), "x".repeat(60_000))]);
        let expand = |config: serde_json::Value| {
            let config = config.as_object().cloned().expect("fields");
            interpolate_config(&config, &env, &node()).map(drop)
        };
        let long = serde_json::json!({ "args": ["a", "${BIG}${BIG}${BIG}"] });
        assert_eq!(expand(long), Err(ExpansionError::TooLong("config.args[1]".to_owned())));
        let many = serde_json::json!({ "args": vec!["${BIG}${BIG}"; 100] });
        let mut error = None;
        let used = allocation_counter::measure(|| error = expand(many).err());
        assert_eq!(error, Some(ExpansionError::TooMuch("config.args[8]".to_owned())));
        assert!(used.bytes_max < 4 * 1024 * 1024, "{used:?}");
        assert_eq!(expand(serde_json::json!({ "args": vec!["${BIG}"; 10], "command": "x" })), Ok(()));
    }

    /// A slow reading of the rule: one letter after the other.
    fn oracle(text: &str, env: &BTreeMap<String, String>) -> String {
        let letters: Vec<char> = text.chars().collect();
        let (mut out, mut at) = (String::new(), 0);
        while at < letters.len() {
            let end = letters[at..].iter().position(|letter| *letter == '}').map(|end| at + end);
            let begins = letters[at] == '$' && letters.get(at + 1) == Some(&'{');
            let (true, Some(end)) = (begins, end) else {
                out.push(letters[at]);
                at += 1;
                continue;
            };
            let name: String = letters[at + 2..end].iter().collect();
            let written: String = letters[at..=end].iter().collect();
            out.push_str(env.get(name.trim()).map_or(&written, |value| value));
            at = end + 1;
        }
        out
    }

    proptest::proptest! {
        #[test]
        fn text_is_expanded_once_and_within_its_bound(
            parts in proptest::collection::vec("(\\$\\{[ab]\\})|(\\$\\{ c \\})|[$}{x]{1,3}|(\\$\\{none\\})|é", 0..40),
            lengths in proptest::array::uniform2(0usize..9000),
            inner in "(\\$\\{[abc]\\}|\\$\\{|x){0,3}",
        ) {
            let text = parts.concat();
            let values = ["x".repeat(lengths[0]), "${a}".repeat(lengths[1] / 4), inner];
            let env: BTreeMap<String, String> =
                ["a", "b", "c"].map(str::to_owned).into_iter().zip(values).collect();
            let wanted = oracle(&text, &env);
            let found = interpolate(&text, &env, &NodeFacts::default());
            if wanted.len() > MAX_VALUE_BYTES {
                proptest::prop_assert_eq!(found, Err(TooLong));
            } else {
                proptest::prop_assert_eq!(found, Ok(wanted));
            }
        }

        #[test]
        fn an_environment_has_no_more_than_its_bytes(
            meta in proptest::collection::btree_map("[a-d]", "(\\$\\{NOMAD_META_[a-d]\\}|[a-z]{900}){0,30}", 0..4),
            env in proptest::collection::btree_map("[a-z]", "(\\$\\{NOMAD_META_[a-d]\\}|x){0,30}", 0..9),
        ) {
            let job = JobSpec { meta, ..JobSpec::default() };
            let task = task(&serde_json::json!({ "env": env }));
            if let Ok(env) = try_build(AllocatedResources::default(), &job, &task, &BTreeMap::new()) {
                proptest::prop_assert!(env.values().all(|value| value.len() <= MAX_VALUE_BYTES));
                proptest::prop_assert!(size(&env) <= MAX_TOTAL_BYTES);
            }
        }
    }
}
