//! A task's environment and the interpolation of `${…}`.
//!
//! Input: the allocation, its job, the node's facts and the task's directories. Output: text. Pure; must never read the
//! process's own environment: the host's part of it is passed in.

use std::collections::BTreeMap;

use drover_api::allocation::AllocatedPort;
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
    /// The host's variables that tasks may get; none for images.
    pub host: &'a BTreeMap<String, String>,
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
pub fn environment(input: &EnvironmentInput<'_>) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    add_paths_and_limits(&mut env, input);
    add_identity(&mut env, input);
    add_ports(&mut env, &input.allocation.spec.resources.ports);
    add_meta(&mut env, input);
    for (name, value) in input.host {
        if is_host_variable_permitted(name) && !env.contains_key(name) {
            env.insert(name.clone(), value.clone());
        }
    }
    let own: Vec<(String, String)> =
        input.task.env.iter().map(|(name, value)| (clean(name), interpolate(value, &env, input.node))).collect();
    env.extend(own);
    env
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
    let job_id = if job.id.is_empty() { &alloc.spec.job_name } else { &job.id };
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
        let inside = if port.to > 0 { port.to } else { port.value };
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

/// The job's meta, overridden by the group's and the task's: by the key as it is written, and in the two forms that
/// shells can name.
fn add_meta(env: &mut BTreeMap<String, String>, input: &EnvironmentInput<'_>) {
    let mut meta = BTreeMap::new();
    for level in [&input.job.meta, &input.group.meta, &input.task.meta] {
        meta.extend(level.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    for (key, value) in meta {
        let value = interpolate(&value, env, input.node);
        // A name with a `=` would be read as another one.
        if !key.contains(['=', '\0']) {
            put(env, &format!("NOMAD_META_{key}"), &value);
        }
        put(env, &format!("NOMAD_META_{}", clean(&key.to_uppercase())), &value);
        put(env, &format!("NOMAD_META_{}", clean(&key)), &value);
    }
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

/// Replaces every `${…}` that is known; others stay as they are written.
pub fn interpolate(text: &str, env: &BTreeMap<String, String>, node: &NodeFacts) -> String {
    substitute(text, env, node).0
}

/// Replaces every `${…}`; the error names the first that is not known.
pub fn interpolate_strictly(text: &str, env: &BTreeMap<String, String>, node: &NodeFacts) -> Result<String, String> {
    match substitute(text, env, node) {
        (_, Some(unknown)) => Err(unknown),
        (text, None) => Ok(text),
    }
}

/// Replaces references in a driver's configuration, nested values included; the error names the first that is not
/// known.
pub fn interpolate_value(
    value: &serde_json::Value,
    env: &BTreeMap<String, String>,
    node: &NodeFacts,
) -> Result<serde_json::Value, String> {
    use serde_json::Value;
    Ok(match value {
        Value::String(text) => Value::String(interpolate_strictly(text, env, node)?),
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| interpolate_value(item, env, node)).collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(name, field)| Ok((name.clone(), interpolate_value(field, env, node)?)))
                .collect::<Result<_, String>>()?,
        ),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    })
}

fn substitute(text: &str, env: &BTreeMap<String, String>, node: &NodeFacts) -> (String, Option<String>) {
    let (mut out, mut unknown, mut rest) = (String::with_capacity(text.len()), None, text);
    while let Some(start) = rest.find("${") {
        let Some(length) = rest[start..].find('}') else { break };
        let reference = &rest[start..=start + length];
        out.push_str(&rest[..start]);
        if let Some(value) = lookup(reference[2..reference.len() - 1].trim(), env, node) {
            out.push_str(&value);
        } else {
            unknown.get_or_insert_with(|| reference.to_owned());
            out.push_str(reference);
        }
        rest = &rest[start + length + 1..];
    }
    out.push_str(rest);
    (out, unknown)
}

fn lookup(name: &str, env: &BTreeMap<String, String>, node: &NodeFacts) -> Option<String> {
    if let Some(key) = name.strip_prefix("env[").and_then(|rest| rest.strip_suffix(']')) {
        return env.get(key.trim_matches('"')).cloned();
    }
    if name == "node.region" {
        return Some("global".to_owned());
    }
    let known = reference::value(name, &node.references());
    if let Some(value) = known {
        return Some(value.to_owned());
    }
    if reference::is_of_node(name) { None } else { env.get(name).cloned() }
}

#[cfg(test)]
mod tests {
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

    fn build(
        resources: AllocatedResources,
        job: &JobSpec,
        task: &Task,
        host: &BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
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
            host,
        })
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
        assert_eq!(interpolate(text, &BTreeMap::new(), &node()), "linux-1-${nope}");
        assert_eq!(interpolate_strictly(text, &BTreeMap::new(), &node()), Err("${nope}".into()));
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
}
