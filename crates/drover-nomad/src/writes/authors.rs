//! What the author of a job must be allowed to do.
//!
//! The admission policies of drover's chart (`charts/drover/files/policies`) ask the API server for these rights of
//! the writer. Here the gateway is the writer, so that it asks for them itself, of its caller. A test compares both on
//! generated jobs.

use std::collections::BTreeSet;

use drover_api::JobSpec;
use drover_api::job::JobType;
use drover_api::value_object::{ValueKind, ValueObject};
use drover_core::model::DEFAULT_PRIORITY;
use drover_core::task::secret;

use super::order::{Demand, Way};

const GROUP: &str = drover_api::GROUP;

/// The rights to put a spec in the place of another one, or to make a job of it. `name` is the object's.
pub fn of_job(namespace: &str, name: &str, before: Option<&JobSpec>, after: &JobSpec) -> Vec<Demand> {
    let job = |subresource: &'static str, verb: &'static str| Way {
        group: GROUP,
        resource: "jobs",
        subresource,
        verb,
        namespace: namespace.to_owned(),
        // A right to create is asked for without a name.
        name: if verb == "create" { String::new() } else { name.to_owned() },
    };
    let mut demands: Vec<Demand> = vec![job("", if before.is_some() { "update" } else { "create" }).into()];
    let for_all = |way: Way| Way { name: String::new(), ..way };
    let is_raised = after.priority > before.map_or(DEFAULT_PRIORITY, |before| before.priority.max(DEFAULT_PRIORITY));
    if is_raised || (before.is_none() && after.r#type == JobType::System) {
        demands.push(for_all(job("priority", "update")).into());
    }
    let mut tasks = after.groups.iter().flat_map(|group| &group.tasks);
    if before != Some(after) && tasks.any(|task| task.csi_plugin.is_some()) {
        demands.push(job("csiplugin", "update").into());
    }
    if before.is_none_or(|before| before.groups != after.groups) {
        let instead = for_all(job("secrets", "update"));
        demands.extend(values(namespace, after).map(|way| Demand { any_of: vec![way, instead.clone()] }));
    }
    demands
}

/// The rights to what a job's tasks are given, each once.
fn values(namespace: &str, spec: &JobSpec) -> impl Iterator<Item = Way> {
    let core = |resource: &'static str, subresource, verb, name: &str| Way {
        resource,
        subresource,
        verb,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..Way::default()
    };
    let mut ways = BTreeSet::new();
    for task in spec.groups.iter().flat_map(|group| &group.tasks) {
        for secret in &task.secrets {
            let ValueObject { kind, name } = secret::object_of(secret);
            let resource = if kind == ValueKind::ConfigMap { "configmaps" } else { "secrets" };
            ways.insert(core(resource, "", "get", &name));
        }
        ways.extend(task.image_pull_secrets.iter().map(|name| core("secrets", "", "get", name)));
        let accounts = task.identities.iter().filter_map(|identity| identity.kubernetes.as_ref());
        ways.extend(accounts.map(|account| core("serviceaccounts", "token", "create", &account.service_account)));
    }
    ways.into_iter()
}
