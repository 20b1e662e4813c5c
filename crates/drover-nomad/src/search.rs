//! Search by the beginning of ids (`spec/api.md` 5): what the command line completes names by.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::fault::Fault;
use crate::resource::{Resource, Scopes};
use crate::wire::{evaluation, plugin, scaling};
use crate::world::{World, job_id, namespace, volume_id};

/// The most ids of a context.
const MOST: usize = 20;

/// What is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// Allocations.
    Allocations,
    /// Deployments.
    Deployments,
    /// Evaluations.
    Evaluations,
    /// Jobs.
    Jobs,
    /// Nodes.
    Nodes,
    /// Pools of nodes.
    Pools,
    /// Namespaces.
    Namespaces,
    /// CSI plugins.
    Plugins,
    /// CSI volumes.
    Volumes,
    /// Host volumes with an id of their own: there are none.
    HostVolumes,
    /// Scaling policies.
    ScalingPolicies,
    /// Variables: there are none.
    Variables,
    /// Each of the others.
    All,
}

/// Each context with its name, but for `all`.
const NAMES: [(&str, Context); 12] = [
    ("allocs", Context::Allocations),
    ("deployment", Context::Deployments),
    ("evals", Context::Evaluations),
    ("jobs", Context::Jobs),
    ("nodes", Context::Nodes),
    ("node_pools", Context::Pools),
    ("namespaces", Context::Namespaces),
    ("plugins", Context::Plugins),
    ("volumes", Context::Volumes),
    ("host_volumes", Context::HostVolumes),
    ("scaling_policy", Context::ScalingPolicies),
    ("vars", Context::Variables),
];

impl Context {
    /// What a caller must be allowed to list.
    pub(crate) const fn resource(self) -> Option<Resource> {
        match self {
            Self::Allocations => Some(Resource::Allocations),
            Self::Deployments => Some(Resource::Deployments),
            Self::Evaluations | Self::Jobs | Self::ScalingPolicies => Some(Resource::Jobs),
            Self::Nodes | Self::Pools | Self::Plugins => Some(Resource::Nodes),
            Self::Namespaces => Some(Resource::Namespaces),
            Self::Volumes => Some(Resource::Volumes),
            Self::HostVolumes | Self::Variables | Self::All => None,
        }
    }
}

/// What is searched for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchRequest {
    /// How the ids begin.
    pub prefix: String,
    /// Where.
    pub context: Context,
}

impl SearchRequest {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// 400 for what is no search, and for an unknown context.
    pub fn read(body: &[u8]) -> Result<Self, Fault> {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "PascalCase", default)]
        struct Body {
            prefix: String,
            context: String,
        }
        const EXAMPLE: &str = "{\"Prefix\": \"web\", \"Context\": \"jobs\"}";
        let wrong = |why: &str| Fault::bad(format!("the body is no search, as {EXAMPLE}: {why}"));
        let object: Map<String, Value> = serde_json::from_slice(body).map_err(|error| wrong(&error.to_string()))?;
        let parsed = serde_json::from_value(Value::Object(object));
        let Body { prefix, context } = parsed.map_err(|error| wrong(&error.to_string()))?;
        let context = match context.as_str() {
            "" | "all" => Context::All,
            name => {
                let known = NAMES.iter().find(|(known, _)| *known == name).map(|(_, context)| *context);
                let names = || NAMES.map(|(name, _)| name).join(", ");
                known.ok_or_else(|| Fault::bad(format!("Context is {name:?}: give all, {}", names())))?
            }
        };
        Ok(Self { prefix, context })
    }

    /// The contexts that are searched.
    pub(crate) fn contexts(&self) -> Vec<Context> {
        match self.context {
            Context::All => NAMES.map(|(_, context)| context).to_vec(),
            one => vec![one],
        }
    }
}

/// Searches. Each asked context is a key, also where nothing was found.
pub(crate) fn answer(request: &SearchRequest, world: &World, scopes: &Scopes) -> Value {
    let (mut matches, mut truncations) = (Map::new(), Map::new());
    for context in request.contexts() {
        let Some((name, _)) = NAMES.iter().find(|(_, known)| *known == context) else { continue };
        let is_shown = context.resource().is_some_and(|resource| scopes.knows(resource));
        let mut found = if is_shown { ids(context, world, scopes) } else { Vec::new() };
        found.retain(|id| id.starts_with(&request.prefix));
        found.sort();
        found.dedup();
        truncations.insert((*name).to_owned(), json!(found.len() > MOST));
        found.truncate(MOST);
        matches.insert((*name).to_owned(), if found.is_empty() { Value::Null } else { json!(found) });
    }
    json!({ "Matches": matches, "Truncations": truncations })
}

fn ids(context: Context, world: &World, scopes: &Scopes) -> Vec<String> {
    match context {
        Context::Allocations => {
            let of = world.allocations.iter().filter(|it| scopes.has(Resource::Allocations, namespace(&it.metadata)));
            of.filter_map(|it| it.metadata.uid.clone()).collect()
        }
        Context::Deployments => {
            let of = world.deployments.iter().filter(|it| scopes.has(Resource::Deployments, namespace(&it.metadata)));
            of.filter_map(|it| it.metadata.uid.clone()).collect()
        }
        Context::Evaluations => {
            let of = world.jobs.iter().filter(|it| scopes.has(Resource::Jobs, namespace(&it.metadata)));
            of.flat_map(|job| evaluation::of_job(job).into_iter().map(|one| one.id)).collect()
        }
        Context::Jobs => {
            let of = world.jobs.iter().filter(|it| scopes.has(Resource::Jobs, namespace(&it.metadata)));
            of.map(|job| job_id(job).to_owned()).collect()
        }
        Context::Volumes => {
            let of = world.volumes.iter().filter(|it| scopes.has(Resource::Volumes, namespace(&it.metadata)));
            of.map(|volume| volume_id(volume).to_owned()).collect()
        }
        Context::Nodes => world.nodes.iter().filter_map(|node| node.metadata.uid.clone()).collect(),
        Context::Pools => {
            let of = world.nodes.iter().map(|node| node.spec.node_pool.clone());
            of.chain(["all".to_owned(), "default".to_owned()]).collect()
        }
        Context::Plugins => plugin::all(world).into_keys().collect(),
        Context::Namespaces => {
            let names = world.namespaces.iter().filter_map(|it| it.metadata.name.clone());
            names.filter(|name| scopes.has(Resource::Namespaces, name)).collect()
        }
        Context::ScalingPolicies => {
            let of = world.jobs.iter().filter(|it| scopes.has(Resource::Jobs, namespace(&it.metadata)));
            of.flat_map(|job| scaling::of_job(job, world)).map(|policy| policy.id()).collect()
        }
        Context::HostVolumes | Context::Variables | Context::All => Vec::new(),
    }
}
