//! A job's definition as the scheduler uses it: the complete spec, and for each group three fingerprints that answer
//! "is an allocation of another version still current?" without comparing specs field by field.
//!
//! Built once for each version of a job. It must never know counts at run time (scale) or what runs.

use std::sync::{Arc, OnceLock};

use drover_api::JobSpec;
use drover_api::group::Group;
use drover_api::job::JobType;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::defaults;

/// A digest of some of a group's fields.
pub type FieldsDigest = [u8; 16];

/// One version of a job, complete.
#[derive(Clone, Debug)]
pub struct Definition {
    /// The spec with every policy complete.
    pub spec: JobSpec,
    /// They follow from the spec, and are made on demand: a spec that is only checked has no use for them.
    prints: OnceLock<Vec<GroupPrint>>,
}

impl PartialEq for Definition {
    fn eq(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

/// Digests of what matters for a group's allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPrint {
    /// All that a node acts on: tasks, networks, volumes, services, restart, …
    pub acted_on: FieldsDigest,
    /// The part of it whose change needs a new allocation (`spec/scheduler.md`, 3.8).
    pub destructive: FieldsDigest,
    /// Where it may be: constraints, datacenters, pool.
    pub placement: FieldsDigest,
}

impl Definition {
    /// Completes a spec. `name` is the object's name.
    pub fn new(spec: &JobSpec, name: &str) -> Arc<Self> {
        Arc::new(Self { spec: defaults::canonical(spec, name), prints: OnceLock::new() })
    }

    /// The job's type.
    pub fn job_type(&self) -> JobType {
        self.spec.r#type
    }

    /// A group by name.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.spec.group(name)
    }

    /// Whether nodes act alike on both: the same groups, and in each the same tasks. Allocations of one are current in
    /// the other.
    pub fn is_same_work(&self, other: &Self) -> bool {
        let work = |one: &Self| -> Vec<(String, FieldsDigest)> {
            let groups = one.spec.groups.iter().zip(one.prints());
            groups.map(|(group, print)| (group.name.clone(), print.acted_on)).collect()
        };
        work(self) == work(other)
    }

    /// The digests of a group.
    pub fn print(&self, group: &str) -> Option<GroupPrint> {
        self.spec.groups.iter().position(|known| known.name == group).map(|at| self.prints()[at])
    }

    fn prints(&self) -> &[GroupPrint] {
        self.prints.get_or_init(|| self.spec.groups.iter().map(|group| print(&self.spec, group)).collect())
    }
}

/// Whether two specs make the same version of a job: all fields but scale and stop are equal.
pub fn is_same_version(one: &JobSpec, other: &JobSpec) -> bool {
    version_spec(one) == version_spec(other)
}

/// The part of a spec that a version of the job holds: all but scale and stop.
pub fn version_spec(spec: &JobSpec) -> JobSpec {
    JobSpec { scale: None, stop: false, ..spec.clone() }
}

fn print(job: &JobSpec, group: &Group) -> GroupPrint {
    let whole = serde_json::to_value(group).unwrap_or_default();
    let meta = json!([job.meta, group.meta]);
    let mut acted_on = without(
        &whole,
        &["count", "update", "reschedule", "migrate", "spreads", "affinities", "constraints", "scaling", "disconnect"],
    );
    acted_on["stopOnClientAfter"] = whole["disconnect"]["stopOnClientAfter"].clone();
    for task in acted_on["tasks"].as_array_mut().into_iter().flatten() {
        *task = without(task, &["constraints", "affinities"]);
    }
    let tasks: Vec<Value> =
        whole["tasks"].as_array().into_iter().flatten().map(|task| destructive_task(job, group, task)).collect();
    let networks: Vec<Value> = whole["networks"].as_array().cloned().unwrap_or_default();
    let task_constraints: Vec<&Value> =
        whole["tasks"].as_array().into_iter().flatten().map(|task| &task["constraints"]).collect();
    GroupPrint {
        acted_on: digest(&json!([acted_on, meta, job.id])),
        destructive: digest(&json!([tasks, whole["ephemeralDisk"], networks, whole["volumes"]])),
        placement: digest(&json!([
            job.constraints,
            whole["constraints"],
            task_constraints,
            job.datacenters,
            job.node_pool
        ])),
    }
}

/// The fields of a task whose change needs a new allocation.
fn destructive_task(job: &JobSpec, group: &Group, task: &Value) -> Value {
    let meta: std::collections::BTreeMap<_, _> = job.meta.iter().chain(&group.meta).collect();
    let mut effective = json!(meta);
    for (key, value) in task["meta"].as_object().into_iter().flatten() {
        effective[key] = value.clone();
    }
    let fields = [
        "name",
        "driver",
        "user",
        "config",
        "env",
        "artifacts",
        "secrets",
        "templates",
        "csiPlugin",
        "volumeMounts",
        "resources",
        "identities",
    ];
    let mut picked: serde_json::Map<String, Value> =
        fields.iter().map(|field| ((*field).to_owned(), task[*field].clone())).collect();
    picked.insert("meta".to_owned(), effective);
    picked.insert("renderTemplates".to_owned(), task["restart"]["renderTemplates"].clone());
    picked.insert("logsDisabled".to_owned(), task["logs"]["disabled"].clone());
    Value::Object(picked)
}

fn without(value: &Value, fields: &[&str]) -> Value {
    let mut rest = value.clone();
    if let Value::Object(map) = &mut rest {
        for field in fields {
            map.shift_remove(*field);
        }
    }
    rest
}

/// SHA-256 of the value with sorted keys, so that the order in which a user wrote them does not count.
fn digest(value: &Value) -> FieldsDigest {
    let mut hasher = Sha256::new();
    feed(&mut hasher, value);
    let mut short = FieldsDigest::default();
    short.copy_from_slice(&hasher.finalize()[..16]);
    short
}

fn feed(hasher: &mut Sha256, value: &Value) {
    match value {
        Value::Object(map) => {
            hasher.update(b"{");
            let mut entries: Vec<_> = map.iter().filter(|(_, value)| !value.is_null()).collect();
            entries.sort_by_key(|(key, _)| *key);
            for (key, value) in entries {
                hasher.update(key.as_bytes());
                hasher.update([0]);
                feed(hasher, value);
            }
            hasher.update(b"}");
        }
        Value::Array(items) => {
            hasher.update(b"[");
            for item in items {
                feed(hasher, item);
            }
            hasher.update(b"]");
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            hasher.update(value.to_string().as_bytes());
            hasher.update([1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(yaml: &Value) -> Arc<Definition> {
        Definition::new(&serde_json::from_value(yaml.clone()).unwrap(), "web")
    }

    fn base() -> Value {
        json!({ "groups": [{ "name": "g", "count": 3, "tasks": [
            { "name": "t", "driver": "mock", "config": { "a": 1, "b": [1, 2] }, "resources": { "memoryMB": 64 } }] }] })
    }

    fn changed(pointer: &str, value: Value) -> (GroupPrint, GroupPrint) {
        let mut other = base();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        other.pointer_mut(parent).unwrap()[field] = value;
        (definition(&base()).print("g").unwrap(), definition(&other).print("g").unwrap())
    }

    #[test]
    fn a_change_that_no_node_acts_on_leaves_allocations_current() {
        for (field, value) in [
            ("/priority", json!(70)),
            ("/groups/0/count", json!(9)),
            ("/groups/0/update", json!({ "maxParallel": 5 })),
            ("/groups/0/spreads", json!([{ "attribute": "${node.datacenter}" }])),
            ("/groups/0/reschedule", json!({ "attempts": 1, "interval": "1h" })),
        ] {
            let (before, after) = changed(field, value);
            assert_eq!(before, after, "{field}");
        }
    }

    #[test]
    fn a_change_of_the_task_needs_a_new_allocation() {
        for (field, value) in [
            ("/groups/0/tasks/0/config", json!({ "a": 2, "b": [1, 2] })),
            ("/groups/0/tasks/0/env", json!({ "X": "1" })),
            ("/groups/0/tasks/0/resources", json!({ "memoryMB": 65 })),
            ("/meta", json!({ "k": "v" })),
            ("/groups/0/networks", json!([{ "ports": [{ "label": "http" }] }])),
            ("/groups/0/ephemeralDisk", json!({ "sizeMB": 400 })),
        ] {
            let (before, after) = changed(field, value);
            assert_ne!(before.destructive, after.destructive, "{field}");
        }
    }

    #[test]
    fn a_change_that_a_node_takes_over_is_made_in_place() {
        for (field, value) in [
            ("/groups/0/tasks/0/killTimeout", json!("9s")),
            ("/groups/0/restart", json!({ "attempts": 9, "interval": "1h", "delay": "1s" })),
            ("/groups/0/services", json!([{ "name": "s" }])),
        ] {
            let (before, after) = changed(field, value);
            assert_eq!(before.destructive, after.destructive, "{field}");
            assert_ne!(before.acted_on, after.acted_on, "{field}");
        }
    }

    #[test]
    fn the_order_of_keys_does_not_count() {
        let (before, after) = changed("/groups/0/tasks/0/config", json!({ "b": [1, 2], "a": 1 }));
        assert_eq!(before, after);
    }

    #[test]
    fn the_work_is_the_same_while_nodes_act_alike_on_the_same_groups() {
        let changed = |pointer: &str, value: Value| {
            let mut other = base();
            *other.pointer_mut(pointer).unwrap() = value;
            definition(&other)
        };
        let task = |memory: i64| json!({ "name": "t", "driver": "mock", "resources": { "memoryMB": memory } });
        let group = |name: &str| json!({ "name": name, "tasks": [task(64)] });
        for (what, other, is_same) in [
            ("nothing", definition(&base()), true),
            ("the count", changed("/groups/0/count", json!(9)), true),
            ("a task's config", changed("/groups/0/tasks/0/config/a", json!(2)), false),
            ("a task's memory", changed("/groups/0/tasks/0/resources/memoryMB", json!(65)), false),
            ("a group's name", changed("/groups/0/name", json!("h")), false),
            ("a further group", changed("/groups", json!([base()["groups"][0], group("h")])), false),
        ] {
            assert_eq!(definition(&base()).is_same_work(&other), is_same, "{what}");
            assert_eq!(other.is_same_work(&definition(&base())), is_same, "{what}");
        }
    }

    #[test]
    fn definitions_are_equal_when_their_specs_are_whatever_was_asked_of_them() {
        let (one, other) = (definition(&base()), definition(&base()));
        assert!(one.print("g").is_some());
        assert_eq!(one, other, "the digests of the second were not asked for yet");
        let mut more = base();
        more["groups"][0]["count"] = json!(4);
        assert_ne!(one, definition(&more), "though no digest tells the counts apart");
    }

    #[test]
    fn scale_and_stop_make_no_version_of_a_job_and_all_else_does() {
        let spec = |change: Value| -> JobSpec {
            let mut spec = base();
            spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            serde_json::from_value(spec).unwrap()
        };
        let plain = spec(json!({}));
        for (change, is_same) in [
            (json!({ "scale": { "group": "g", "count": 7 } }), true),
            (json!({ "stop": true }), true),
            (json!({ "scale": { "group": "g", "count": 7 }, "stop": true }), true),
            (json!({ "priority": 70 }), false),
        ] {
            let changed = spec(change.clone());
            assert_eq!(is_same_version(&plain, &changed), is_same, "{change}");
            assert_eq!(version_spec(&changed) == plain, is_same, "{change}");
        }
    }
}
