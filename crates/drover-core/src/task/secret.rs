//! Which Secrets and `ConfigMaps` a task uses, and what `${secret.<name>.<key>}` stands for.
//!
//! Input: a job's fields, and what the objects hold. Output: the objects' names, words for expansion, or the reference
//! that is at fault. The admission policy `drover-secrets` of the chart names the same objects, so that the author of a
//! job is asked for the right to each; the gateway gives out no other.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::group::Group;
use drover_api::task::{SecretProvider, Task, TaskSecret};
use drover_api::value_object::{ValueKind, ValueObject};
use drover_api::{Allocation, AllocationSpec, JobSpec, JobVersion};
use serde_json::Value;

use super::identity;
use super::standing::{self, OwnAllocation, StandingError};

/// Most secrets of a job, over all groups and tasks.
pub const JOB_MAX_SECRETS: usize = 16;

/// The object that a secret of a task is kept in.
pub fn object_of(secret: &TaskSecret) -> ValueObject {
    match secret.provider {
        SecretProvider::Kubernetes => ValueObject { kind: ValueKind::Secret, name: secret.path.clone() },
        SecretProvider::Configmap => ValueObject { kind: ValueKind::ConfigMap, name: secret.path.clone() },
        // A variable's path has slashes, which no object's name has.
        SecretProvider::Nomad => ValueObject { kind: ValueKind::Secret, name: secret.path.replace('/', ".") },
    }
}

/// All objects whose values a task uses: those that it lists, and those by which its image is pulled.
pub fn objects_of_task(task: &Task) -> impl Iterator<Item = ValueObject> {
    task.secrets.iter().map(object_of).chain(pull_secrets(task))
}

/// The Secrets by which a task's image is pulled.
pub fn pull_secrets(task: &Task) -> impl Iterator<Item = ValueObject> {
    task.image_pull_secrets.iter().map(|name| ValueObject { kind: ValueKind::Secret, name: name.clone() })
}

/// All objects whose values a group's tasks use.
pub fn objects_of_group(group: &Group) -> BTreeSet<ValueObject> {
    group.tasks.iter().flat_map(objects_of_task).collect()
}

/// How many secrets a job's tasks list.
pub fn count(job: &JobSpec) -> usize {
    job.groups.iter().flat_map(|group| &group.tasks).map(|task| objects_of_task(task).count()).sum()
}

/// Why a node does not get an object's values for an allocation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PermitError {
    /// The node has no say about the allocation.
    #[error(transparent)]
    Standing(#[from] StandingError),
    /// Its version of the job does not list the object.
    #[error("{0} is nothing that version {1} of the job lists for group {2}; add it to tasks[].secrets or identities")]
    Unlisted(ValueObject, i64, String),
}

/// Whether a node gets an object's values for an allocation: it must run there, live, and its version of the job must
/// list the object. What is known of services, as every name in the cluster's DNS is, it gets where a task of the group
/// has templates. `uid` is the allocation's as the node knows it.
///
/// # Errors
/// Why not.
pub fn permit(
    allocation: Option<&Allocation>,
    version: Option<&JobVersion>,
    node: (&str, &str),
    object: &ValueObject,
) -> Result<(), PermitError> {
    let OwnAllocation { allocation, group } = standing::of_node(allocation, version, node)?;
    let is_listed = group.is_some_and(|it| match object.kind {
        ValueKind::Secret | ValueKind::ConfigMap => objects_of_group(it).contains(object),
        ValueKind::Identity => identity::find(it, object).is_some(),
        ValueKind::Service | ValueKind::Services => it.tasks.iter().any(|task| !task.templates.is_empty()),
        ValueKind::Unknown => false,
    });
    let AllocationSpec { job_version, group, .. } = &allocation.spec;
    if is_listed { Ok(()) } else { Err(PermitError::Unlisted(object.clone(), *job_version, group.clone())) }
}

/// Why a secret's values cannot be used in text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretWordsError {
    /// The object has no such key.
    #[error("{field}: ${{secret.{name}.{key}}}: {object} has no key {key}; add it there, or correct the reference")]
    NoKey {
        /// The field with the reference.
        field: String,
        /// The secret's name in the task.
        name: String,
        /// The key.
        key: String,
        /// Where it should be.
        object: ValueObject,
    },
    /// The value is no text.
    #[error(
        "{field}: ${{secret.{name}.{key}}}: the value in {object} is no UTF-8 text, and a variable or setting takes nothing else"
    )]
    NoText {
        /// The field with the reference.
        field: String,
        /// The secret's name in the task.
        name: String,
        /// The key.
        key: String,
        /// Where it is.
        object: ValueObject,
    },
}

/// What the references of a task stand for, and nothing that it does not refer to: `secret.<name>.<key>` and the value.
/// `values` holds what each object has, by key.
///
/// # Errors
/// When a key that is referred to is missing, or its value is no text: field, object and remedy.
pub fn words(
    task: &Task,
    meta: &BTreeMap<&String, &String>,
    values: &BTreeMap<ValueObject, BTreeMap<String, Vec<u8>>>,
) -> Result<BTreeMap<String, String>, SecretWordsError> {
    let mut words = BTreeMap::new();
    for Reference { field, name, key } in references(task, meta) {
        let Some(secret) = task.secrets.iter().find(|secret| secret.name == name) else { continue };
        let object = object_of(secret);
        let Some(value) = values.get(&object).and_then(|data| data.get(&key)) else {
            return Err(SecretWordsError::NoKey { field, name, key, object });
        };
        let Ok(text) = std::str::from_utf8(value) else {
            return Err(SecretWordsError::NoText { field, name, key, object });
        };
        words.insert(format!("secret.{name}.{key}"), text.to_owned());
    }
    Ok(words)
}

/// A reference to a secret's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The field that it stands in, as `env.DB`.
    pub field: String,
    /// The secret's name in the task.
    pub name: String,
    /// The key of the object.
    pub key: String,
}

/// Each reference of a task to a secret's value, in the order of the fields. `meta` is what the task gets as metadata,
/// the group's and the job's included.
pub fn references(task: &Task, meta: &BTreeMap<&String, &String>) -> Vec<Reference> {
    let mut found = Vec::new();
    for (name, value) in &task.env {
        in_text(value, &|| format!("env.{name}"), &mut found);
    }
    for (name, value) in meta {
        in_text(value, &|| format!("meta.{name}"), &mut found);
    }
    for (name, value) in &task.config {
        in_value(value, &|| format!("config.{name}"), &mut found);
    }
    found
}

/// The objects that a task's references need.
pub fn referred(task: &Task, meta: &BTreeMap<&String, &String>) -> BTreeSet<ValueObject> {
    let names: BTreeSet<String> = references(task, meta).into_iter().map(|reference| reference.name).collect();
    task.secrets.iter().filter(|secret| names.contains(&secret.name)).map(object_of).collect()
}

fn in_value(value: &Value, field: &dyn Fn() -> String, found: &mut Vec<Reference>) {
    match value {
        Value::String(text) => in_text(text, field, found),
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                in_value(item, &|| format!("{}[{n}]", field()), found);
            }
        }
        Value::Object(fields) => {
            for (name, inner) in fields {
                in_value(inner, &|| format!("{}.{name}", field()), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn in_text(text: &str, field: &dyn Fn() -> String, found: &mut Vec<Reference>) {
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let Some(length) = rest[start..].find('}') else { return };
        let reference = rest[start + 2..start + length].trim();
        if let Some((name, key)) = reference.strip_prefix("secret.").and_then(|path| path.split_once('.')) {
            found.push(Reference { field: field(), name: name.to_owned(), key: key.to_owned() });
        }
        rest = &rest[start + length + 1..];
    }
}

#[cfg(test)]
mod tests {
    mod listed;

    use super::*;
    use serde_json::json;

    fn task() -> Task {
        serde_json::from_value(json!({
            "name": "t", "driver": "exec",
            "env": { "DB": "pg://u:${secret.db.password}@db", "PLAIN": "${attr.kernel.name} ${secret" },
            "config": { "command": "x", "args": ["-k", "${ secret.tls.tls.key }"], "deep": { "a": [["${secret.app.x}"]] } },
            "secrets": [
                { "name": "db", "path": "db-creds" },
                { "name": "tls", "provider": "nomad", "path": "nomad/jobs/web" },
                { "name": "app", "provider": "configmap", "path": "app" },
            ],
        }))
        .expect("a task")
    }

    fn object(kind: ValueKind, name: &str) -> ValueObject {
        ValueObject { kind, name: name.to_owned() }
    }

    fn values() -> BTreeMap<ValueObject, BTreeMap<String, Vec<u8>>> {
        let one = |key: &str, value: &[u8]| BTreeMap::from([(key.to_owned(), value.to_vec())]);
        BTreeMap::from([
            (object(ValueKind::Secret, "db-creds"), one("password", b"hunter2")),
            (object(ValueKind::Secret, "nomad.jobs.web"), one("tls.key", b"KEY")),
            (object(ValueKind::ConfigMap, "app"), one("x", b"y")),
        ])
    }

    #[test]
    fn each_reference_has_its_field_and_keys_keep_their_dots() {
        let meta = (String::from("owner"), String::from("${secret.db.owner}"));
        let found = references(&task(), &BTreeMap::from([(&meta.0, &meta.1)]));
        let shown: Vec<_> = found.iter().map(|at| format!("{} {} {}", at.field, at.name, at.key)).collect();
        let expected =
            ["env.DB db password", "meta.owner db owner", "config.args[1] tls tls.key", "config.deep.a[0][0] app x"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn objects_that_nothing_refers_to_are_none_that_references_need() {
        let mut task = task();
        assert_eq!(referred(&task, &BTreeMap::new()).len(), 3);
        task.env.clear();
        let left: Vec<_> = referred(&task, &BTreeMap::new()).iter().map(ToString::to_string).collect();
        assert_eq!(left, ["Secret nomad.jobs.web", "ConfigMap app"]);
    }

    #[test]
    fn words_are_what_is_referred_to_and_nothing_else() {
        // Each secret has its name, path and provider.
        let TaskSecret { name, provider, path } = &task().secrets[1];
        assert_eq!((name.as_str(), *provider, path.as_str()), ("tls", SecretProvider::Nomad, "nomad/jobs/web"));
        let mut values = values();
        let extra = values.get_mut(&object(ValueKind::Secret, "db-creds")).expect("there");
        extra.insert("admin".to_owned(), b"root".to_vec());
        let words = words(&task(), &BTreeMap::new(), &values).expect("words");
        let expected = [("secret.app.x", "y"), ("secret.db.password", "hunter2"), ("secret.tls.tls.key", "KEY")];
        assert_eq!(words.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_missing_key_and_a_value_that_is_no_text_are_named() {
        let mut values = values();
        let app = object(ValueKind::ConfigMap, "app");
        values.get_mut(&app).expect("there").insert("x".to_owned(), vec![0xff]);
        let error = words(&task(), &BTreeMap::new(), &values).expect_err("no text").to_string();
        assert!(error.starts_with("config.deep.a[0][0]: ${secret.app.x}: the value in ConfigMap app"), "{error}");
        values.remove(&object(ValueKind::Secret, "db-creds"));
        let error = words(&task(), &BTreeMap::new(), &values).expect_err("no key").to_string();
        assert_eq!(
            error,
            "env.DB: ${secret.db.password}: Secret db-creds has no key password; add it there, or correct the reference"
        );
    }

    #[test]
    fn b_052_a_node_gets_what_a_live_allocation_of_its_own_lists_and_nothing_else() {
        let group = json!({ "name": "g", "tasks": [task()] });
        let mut version: JobVersion = serde_json::from_value(json!({
            "apiVersion": "drover.dev/v1alpha1", "kind": "JobVersion", "metadata": { "name": "web-v3" },
            "spec": { "jobName": "web", "jobUID": "job-1", "version": 3, "groupNames": "g",
                      "job": { "groups": [group] }, "submittedAt": "2026-01-01T00:00:00Z" },
        }))
        .expect("a version");
        let allocation = |node: &str, status: &str| -> Allocation {
            serde_json::from_value(json!({
                "apiVersion": "drover.dev/v1alpha1", "kind": "Allocation",
                "metadata": { "name": "web-g-0-x", "uid": "a-1" },
                "spec": { "jobName": "web", "jobUID": "job-1", "jobVersion": 3, "group": "g", "index": 0, "nodeName": node },
                "status": { "clientStatus": status },
            }))
            .expect("an allocation")
        };
        let db = object(ValueKind::Secret, "db-creds");
        let (running, mine) = (allocation("n-1", "running"), ("n-1", "a-1"));
        assert_eq!(permit(Some(&running), Some(&version), mine, &db), Ok(()));
        assert_eq!(permit(Some(&allocation("n-1", "pending")), Some(&version), mine, &db), Ok(()));
        assert_eq!(permit(None, Some(&version), mine, &db), Err(StandingError::NoAllocation.into()));
        assert_eq!(
            permit(Some(&running), Some(&version), ("n-1", "a-2"), &db),
            Err(StandingError::NoAllocation.into())
        );
        assert_eq!(permit(Some(&running), Some(&version), ("n-2", "a-1"), &db), Err(StandingError::OtherNode.into()));
        for ended in ["complete", "failed", "lost"] {
            let over = allocation("n-1", ended);
            assert_eq!(permit(Some(&over), Some(&version), mine, &db), Err(StandingError::Ended.into()), "{ended}");
        }
        assert_eq!(permit(Some(&running), None, mine, &db), Err(StandingError::NoVersion.into()));
        // A version of a job that was deleted and made again is another one's.
        let mut other = version.clone();
        other.spec.job_uid = "job-2".to_owned();
        assert_eq!(permit(Some(&running), Some(&other), mine, &db), Err(StandingError::NoVersion.into()));
        // A Secret of a ConfigMap's name is another object.
        let services = [object(ValueKind::Service, "api"), object(ValueKind::Services, "")];
        let others = [object(ValueKind::Secret, "app"), object(ValueKind::ConfigMap, "db-creds")];
        for unlisted in others.into_iter().chain(services.clone()).chain([object(ValueKind::Unknown, "db-creds")]) {
            let refused = permit(Some(&running), Some(&version), mine, &unlisted);
            assert_eq!(refused, Err(PermitError::Unlisted(unlisted, 3, "g".to_owned())));
        }
        // Nobody lists services: with templates, a task may look them up.
        let template = json!({ "destPath": "local/x", "embeddedTmpl": "x" });
        version.spec.job.groups[0].tasks[0].templates = vec![serde_json::from_value(template).expect("a template")];
        for service in services {
            assert_eq!(permit(Some(&running), Some(&version), mine, &service), Ok(()));
            let refused = permit(Some(&running), Some(&version), ("n-2", "a-1"), &service);
            assert_eq!(refused, Err(StandingError::OtherNode.into()));
        }
    }

    #[test]
    fn a_group_uses_the_objects_of_all_its_tasks_once() {
        let group: Group = serde_json::from_value(json!({ "name": "g", "tasks": [task(), task()] })).expect("a group");
        let names = |group: &Group| -> Vec<_> { objects_of_group(group).iter().map(ToString::to_string).collect() };
        assert_eq!(names(&group), ["Secret db-creds", "Secret nomad.jobs.web", "ConfigMap app"]);
        let mut pulling = group.clone();
        pulling.tasks[1].image_pull_secrets = vec!["regcred".to_owned()];
        assert_eq!(names(&pulling)[1..3], ["Secret nomad.jobs.web", "Secret regcred"]);
        assert_eq!(count(&JobSpec { groups: vec![group, pulling], ..JobSpec::default() }), 13);
    }
}
