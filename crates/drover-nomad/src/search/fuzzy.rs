//! Search by a part of names, whatever their case. What has no name but an id is found by its beginning.
//!
//! Of jobs also what is in them is found, each in a context of its own, with what it is a part of from the outside in:
//! a task of `default`, `web` and `api`. Those stand first in which the text begins first, and the shorter ones of
//! them.

use std::collections::BTreeMap;

use drover_api::{Job, service};
use serde_json::{Map, Value, json};

use super::context::{Context, MOST};
use super::prefix;
use super::request::SearchRequest;
use crate::full_job::spec;
use crate::resource::{Resource, Scopes};
use crate::wire::allocation;
use crate::world::{World, job_id, namespace, uid};

/// The contexts in which parts of jobs are found.
const OF_JOBS: [&str; 6] = ["groups", "tasks", "services", "images", "commands", "classes"];
/// What of drivers' settings is found: the key, and its context.
const SETTINGS: [(&str, &str); 3] = [("image", "images"), ("command", "commands"), ("class", "classes")];

/// What was found: where the text begins in its name, how long that is, the name or id, and what it is a part of.
type Found = (usize, usize, String, Vec<String>);

/// A search under way.
struct Finder {
    /// In lower case.
    text: String,
    found: BTreeMap<&'static str, Vec<Found>>,
}

impl Finder {
    /// Takes a name in, if the text is in it.
    fn name(&mut self, context: &'static str, name: &str, scope: &[&str]) {
        if let Some(at) = name.to_lowercase().find(&self.text) {
            self.add(context, (at, name), scope);
        }
    }

    /// Takes in what has a name and an id; the scope of the name ends with the id.
    fn either(&mut self, context: &'static str, name: &str, scope: &[&str]) {
        let is_id = scope.last().is_some_and(|id| id.to_lowercase().starts_with(&self.text));
        match name.to_lowercase().find(&self.text) {
            Some(at) => self.add(context, (at, name), scope),
            None if is_id => self.add(context, (0, name), scope),
            None => {}
        }
    }

    /// Takes in what has an id alone.
    fn id(&mut self, context: &'static str, id: &str) {
        if id.to_lowercase().starts_with(&self.text) {
            self.add(context, (0, id), &[]);
        }
    }

    fn add(&mut self, context: &'static str, (at, name): (usize, &str), scope: &[&str]) {
        let scope = scope.iter().map(|part| (*part).to_owned()).collect();
        self.found.entry(context).or_default().push((at, name.len(), name.to_owned(), scope));
    }

    /// Takes in a job and what is in it.
    fn job(&mut self, job: &Job, world: &World) {
        let (space, id, spec) = (namespace(&job.metadata), job_id(job), spec(job, world));
        self.either("jobs", if spec.name.is_empty() { id } else { &spec.name }, &[space, id]);
        for group in &spec.groups {
            self.name("groups", &group.name, &[space, id]);
            self.services(&group.services, &[space, id, &group.name]);
            for task in &group.tasks {
                let within = [space, id, &group.name, &task.name];
                self.name("tasks", &task.name, &within[..3]);
                self.services(&task.services, &within);
                for (key, context) in SETTINGS {
                    self.name(context, task.config.get(key).and_then(Value::as_str).unwrap_or_default(), &within);
                }
            }
        }
    }

    fn services(&mut self, services: &[service::Service], scope: &[&str]) {
        for service in services {
            self.name("services", &service.name, scope);
        }
    }

    /// The answer; a context in which nothing was found is an empty list.
    fn answer(self) -> Value {
        let (mut matches, mut truncations) = (Map::new(), Map::new());
        for (context, mut found) in self.found {
            found.sort();
            found.dedup();
            truncations.insert(context.to_owned(), json!(found.len() > MOST));
            found.truncate(MOST);
            let shown = found.into_iter().map(|(_, _, id, scope)| {
                if scope.is_empty() { json!({ "ID": id }) } else { json!({ "ID": id, "Scope": scope }) }
            });
            matches.insert(context.to_owned(), shown.collect());
        }
        json!({ "Matches": matches, "Truncations": truncations })
    }
}

/// Searches.
pub(super) fn answer(request: &SearchRequest, world: &World, scopes: &Scopes) -> Value {
    let mut finder = Finder { text: request.text.to_lowercase(), found: BTreeMap::new() };
    for context in request.contexts() {
        finder.found.insert(context.name(), Vec::new());
        match context {
            Context::Jobs => {
                finder.found.extend(OF_JOBS.map(|part| (part, Vec::new())));
                let seen = world.jobs.iter().filter(|it| scopes.has(Resource::Jobs, namespace(&it.metadata)));
                for job in seen {
                    finder.job(job, world);
                }
            }
            Context::Allocations => {
                let seen = world.allocations.iter();
                for it in seen.filter(|it| scopes.has(Resource::Allocations, namespace(&it.metadata))) {
                    let scope = [namespace(&it.metadata), uid(Some(&it.metadata))];
                    finder.either("allocs", &allocation::name(it, world), &scope);
                }
            }
            Context::Nodes if scopes.knows(Resource::Nodes) => {
                for it in world.nodes.iter() {
                    let name = it.metadata.name.as_deref().unwrap_or_default();
                    finder.either("nodes", name, &[uid(Some(&it.metadata))]);
                }
            }
            Context::Pools | Context::Namespaces | Context::Plugins => {
                for id in prefix::ids(context, world, scopes) {
                    finder.name(context.name(), &id, &[]);
                }
            }
            Context::Deployments
            | Context::Evaluations
            | Context::Volumes
            | Context::HostVolumes
            | Context::ScalingPolicies => {
                for id in prefix::ids(context, world, scopes) {
                    finder.id(context.name(), &id);
                }
            }
            Context::Nodes | Context::Variables | Context::All => {}
        }
    }
    finder.answer()
}
