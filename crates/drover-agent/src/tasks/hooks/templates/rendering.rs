//! From a template and the values that are known to its text, or to what is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use drover_api::value_object::{ValueKind, ValueObject};
use drover_core::task::environment::{TaskPaths, words_of_node};
use drover_core::task::sandbox_path::{OtherRoot, sandbox_path};
use drover_template::{
    Needed, RenderAnswer, RenderError, RenderErrorKind, RenderLimits, RenderOrder, ServiceInstance, ValueBytes, Values,
};

use super::super::values::{NOT_THERE, TaskValues};
use super::template_file::{TemplateFile, is_private};
use crate::node::task_file::TaskFile;
use crate::tasks::task_words::TaskWords;
use crate::values::ValueState;

/// The longest text of a template in a file, and the longest file that a template looks at.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// Files that one template looks at, one after the other.
const MAX_FILES: usize = 32;
/// Services that a task's templates look up.
const MAX_SERVICES: usize = 64;

/// Why there is no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// What it needs is not there.
    Missing(Missing),
    /// It looks for a key that a map has not, and `errMissingKey` says that it must have it.
    MissingKey(String),
    /// It cannot be rendered so.
    Failed(String),
}

/// What a template needs and has not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Missing {
    /// All of it: each with what to do.
    pub(super) names: BTreeSet<String>,
    /// What of it is not followed yet.
    pub(super) unfollowed: BTreeSet<ValueObject>,
    /// Whether a file of the sandbox is among it, which nothing tells of.
    pub(super) is_of_file: bool,
}

/// What templates look at, beside files.
pub(super) fn values(words: &TaskWords, env: &BTreeMap<String, String>, values: Option<&TaskValues>) -> Values {
    let mut all = Values { env: words_of_node(&words.node()), ..Values::default() };
    all.env.extend(env.iter().map(|(name, value)| (name.clone(), value.clone())));
    let mut names = BTreeSet::new();
    for (object, known) in values.into_iter().flat_map(TaskValues::known) {
        let keys = match known {
            ValueState::There(given) => {
                Some(given.keys.iter().map(|(key, value)| (key.clone(), ValueBytes(value.clone()))).collect())
            }
            ValueState::Absent => None,
            // What may yet come is not known: who looks at it is told so.
            ValueState::Waiting(_) | ValueState::Refused(_) => continue,
        };
        match object.kind {
            ValueKind::Secret => {
                if keys.is_some() {
                    names.insert(object.name.clone());
                }
                all.secrets.insert(object.name.clone(), keys);
            }
            ValueKind::ConfigMap => drop(all.config_maps.insert(object.name.clone(), keys)),
            ValueKind::Service => {
                // What the gateway tells of an instance is JSON; one that is not read is one that is not there.
                let read = |bytes: &ValueBytes| serde_json::from_slice::<ServiceInstance>(&bytes.0).ok();
                let instances = keys.unwrap_or_default().values().filter_map(read).collect();
                drop(all.services.insert(object.name.clone(), instances));
            }
            ValueKind::Services => {
                let read = |(name, bytes): (&String, &ValueBytes)| {
                    Some((name.clone(), serde_json::from_slice::<Vec<String>>(&bytes.0).ok()?))
                };
                all.service_tags = Some(keys.unwrap_or_default().iter().filter_map(read).collect());
            }
            // Templates know nothing of identities.
            ValueKind::Identity | ValueKind::Unknown => {}
        }
    }
    all.secret_names = Some(names);
    all
}

/// Renders a template.
pub(super) async fn render(
    file: &TemplateFile,
    words: &TaskWords,
    looked_at: &Values,
    values: Option<&TaskValues>,
) -> Result<Vec<u8>, Problem> {
    let (env, plan) = (words.runner_env(), words.plan());
    let paths = words.paths();
    let text = match &file.source {
        None => file.template.embedded_tmpl.as_bytes().to_vec(),
        Some(path) => {
            let source = TaskFile { dir: &plan.dir, task: &plan.task.name, path };
            let read = env.machine.disk.read_file(&source, MAX_FILE_BYTES);
            read.map_err(|error| {
                Problem::Failed(format!("sourcePath {} cannot be read: {error}", file.template.source_path))
            })?
        }
    };
    let mut order = RenderOrder {
        name: file.template.dest_path.clone(),
        template: ValueBytes(text),
        left_delimiter: file.template.left_delimiter.clone(),
        right_delimiter: file.template.right_delimiter.clone(),
        err_missing_key: file.template.err_missing_key,
        values: looked_at.clone(),
        now: env.clock.now(),
        limits: RenderLimits::USUAL,
    };
    for _ in 0..=MAX_FILES {
        let (needed, absent) = match env.machine.renderer.render(&order).await {
            Ok(RenderAnswer::Rendered(text)) => return Ok(text.0),
            Ok(RenderAnswer::Failed(error)) => return Err(failure(&error, !order.values.secrets.is_empty())),
            Ok(RenderAnswer::Missing { needed, absent }) => (needed, absent),
            Err(reason) => return Err(Problem::Failed(reason)),
        };
        let files: Vec<String> = needed
            .iter()
            .filter_map(|it| if let Needed::File(path) = it { Some(path.clone()) } else { None })
            .collect();
        if let Some(problem) = needed.iter().find_map(|it| never(it, values)) {
            return Err(Problem::Failed(problem));
        }
        if files.is_empty() {
            let is_of_file = absent.iter().any(|it| matches!(it, Needed::File(_)));
            let names = needed.iter().chain(&absent).map(|it| shown(it, values)).collect();
            let is_followed = |object: &ValueObject| values.is_some_and(|values| values.state_of(object).is_some());
            let unfollowed: BTreeSet<ValueObject> =
                needed.iter().filter_map(service).filter(|object| !is_followed(object)).collect();
            if unfollowed.len() + values.map_or(0, TaskValues::n_looked_up) > MAX_SERVICES {
                let reason = format!("the task's templates look up more than {MAX_SERVICES} services; take fewer");
                return Err(Problem::Failed(reason));
            }
            return Err(Problem::Missing(Missing { names, unfollowed, is_of_file }));
        }
        for path in files {
            let content = read(&path, words, &paths)?;
            order.values.files.insert(path, content.map(ValueBytes));
        }
    }
    Err(Problem::Failed(format!("it looks at more than {MAX_FILES} files; take fewer")))
}

/// What is wrong with a template. What it has made of a secret is not told.
fn failure(error: &RenderError, has_secrets: bool) -> Problem {
    match error.kind {
        RenderErrorKind::MissingKey => Problem::MissingKey(error.to_string()),
        RenderErrorKind::Evaluation if has_secrets => {
            let RenderError { template, line, column, message, .. } = error;
            let function = message.strip_prefix("error calling ").and_then(|rest| rest.split(':').next());
            let what =
                function.map_or_else(|| "it cannot be evaluated".to_owned(), |name| format!("error calling {name}"));
            Problem::Failed(format!(
                "{template}:{line}:{column}: {what}; the rest of the message may hold a secret and is not shown"
            ))
        }
        RenderErrorKind::Syntax | RenderErrorKind::Limit | RenderErrorKind::Evaluation => {
            Problem::Failed(error.to_string())
        }
    }
}

/// A file of the sandbox that a template looks at; none: it is not there.
fn read(path: &str, words: &TaskWords, paths: &TaskPaths) -> Result<Option<Vec<u8>>, Problem> {
    let plan = words.plan();
    let refuse = |why: &dyn std::fmt::Display| {
        let path: String = path.chars().take(128).collect();
        Problem::Failed(format!("file {path:?}: {why}"))
    };
    let found = sandbox_path(path, Some(paths), OtherRoot::Outside).filter(|path| !is_private(path));
    let found = found.ok_or_else(|| refuse(&"it leads out of the task's directory"))?;
    let file = TaskFile { dir: &plan.dir, task: &plan.task.name, path: &found };
    match words.runner_env().machine.disk.read_file(&file, MAX_FILE_BYTES) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(refuse(&error)),
    }
}

/// Why something never comes, whatever is waited for.
fn never(what: &Needed, values: Option<&TaskValues>) -> Option<String> {
    let unlisted = |object: ValueObject| {
        let is_listed = values.is_some_and(|values| values.state_of(&object).is_some());
        (!is_listed).then(|| format!("it looks at {object}, which the task does not list; add it to tasks[].secrets"))
    };
    match what {
        Needed::Secret(name) => unlisted(ValueObject { kind: ValueKind::Secret, name: name.clone() }),
        Needed::ConfigMap(name) => unlisted(ValueObject { kind: ValueKind::ConfigMap, name: name.clone() }),
        Needed::Service(_) | Needed::Services => {
            let object = service(what)?;
            let known = values.and_then(|values| values.state_of(&object));
            let Some(ValueState::Refused(reason)) = known else { return None };
            Some(format!("{object} is refused: {reason}"))
        }
        Needed::ConfigMapKey(..) | Needed::SecretNames | Needed::File(_) => None,
    }
}

/// What a template looks up of services, as the gateway knows it; none: it is nothing of services.
fn service(what: &Needed) -> Option<ValueObject> {
    match what {
        Needed::Service(name) => Some(ValueObject { kind: ValueKind::Service, name: name.clone() }),
        Needed::Services => Some(ValueObject { kind: ValueKind::Services, name: String::new() }),
        _ => None,
    }
}

/// What is missing, and what to do.
fn shown(what: &Needed, values: Option<&TaskValues>) -> String {
    let object = |kind: ValueKind, name: &str| {
        let object = ValueObject { kind, name: name.to_owned() };
        let reason = match values.and_then(|values| values.state_of(&object)) {
            Some(ValueState::Waiting(reason) | ValueState::Refused(reason)) => reason.as_str(),
            None => "it was not asked for yet",
            Some(_) => NOT_THERE,
        };
        format!("{object} ({reason})")
    };
    match what {
        Needed::Secret(name) => object(ValueKind::Secret, name),
        Needed::ConfigMap(name) => object(ValueKind::ConfigMap, name),
        Needed::ConfigMapKey(map, key) => format!("key {key} of ConfigMap {map} (add it there)"),
        Needed::SecretNames => "a Secret of the task (none of those that it lists exists)".to_owned(),
        Needed::Service(name) => object(ValueKind::Service, name),
        Needed::Services => object(ValueKind::Services, ""),
        Needed::File(path) => format!("file {} (it is not there)", path.chars().take(128).collect::<String>()),
    }
}
