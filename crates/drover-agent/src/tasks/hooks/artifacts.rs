//! Hook `artifacts`: what is still to be fetched for a task, three at a time. What was fetched once is not fetched
//! again, neither at a retry nor by another life of the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_api::task::Artifact;
use drover_core::artifact::{destination, fetch_plan};
use drover_core::task::environment::{self, NodeFacts, TaskPaths, TooLong};
use futures::StreamExt;
use futures::stream::BoxStream;

use super::hook_error::TaskHookError;
use crate::artifacts::{Fetch, Fetcher};
use crate::tasks::plan::TaskPlan;

/// Downloads of a task at a time.
const AT_A_TIME: usize = 3;

/// The artifacts of a task that are being fetched: the place of each in the task's list, and what became of it.
pub(crate) type ArtifactsLeft = BoxStream<'static, (usize, Result<(), String>)>;

/// What a task's words mean.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArtifactWords<'a> {
    pub(crate) env: &'a BTreeMap<String, String>,
    pub(crate) node: &'a NodeFacts,
    pub(crate) paths: &'a TaskPaths,
}

/// Begins to fetch what is not done yet; none when nothing is left.
///
/// # Errors
/// When an artifact can never be fetched: the field and the remedy.
pub(crate) fn artifacts_left(
    fetcher: &Arc<dyn Fetcher>,
    plan: &TaskPlan,
    words: ArtifactWords<'_>,
    done: &BTreeSet<usize>,
) -> Result<Option<ArtifactsLeft>, TaskHookError> {
    let left = plan.task.artifacts.iter().enumerate().filter(|(number, _)| !done.contains(number));
    let wanted = left.map(|(number, artifact)| fetch(plan, words, number, artifact)).collect::<Result<Vec<_>, _>>();
    let wanted = wanted.map_err(|reason| TaskHookError { hook: "artifacts", reason, is_recoverable: false })?;
    if wanted.is_empty() {
        return Ok(None);
    }
    let begun = wanted.into_iter().map(|fetch| (fetch.number, fetcher.fetch(fetch)));
    let begun: Vec<_> = begun.collect();
    let running = futures::stream::iter(begun).map(|(number, work)| async move { (number, work.await) });
    Ok(Some(running.buffer_unordered(AT_A_TIME).boxed()))
}

fn fetch(plan: &TaskPlan, words: ArtifactWords<'_>, number: usize, artifact: &Artifact) -> Result<Fetch, String> {
    let at = |reason: &dyn std::fmt::Display| format!("artifacts[{number}]: {reason}");
    let expanded = expanded(artifact, words).map_err(|error| at(&error))?;
    if let Some(unknown) =
        [&expanded.getter_source, &expanded.relative_dest].into_iter().find(|text| text.contains("${"))
    {
        return Err(at(&format!(
            "{:?} refers to something that is not known here; correct the name in ${{...}}",
            unknown.chars().take(128).collect::<String>()
        )));
    }
    Ok(Fetch {
        plan: fetch_plan(&expanded).map_err(|error| at(&error))?,
        destination: destination(&expanded.relative_dest, Some(words.paths)).map_err(|error| at(&error))?,
        dir: plan.dir.clone(),
        task: plan.task.name.clone(),
        number,
        owner: plan.owner,
        chown: if artifact.chown { plan.owner_of_files().map_err(|error| at(&error))? } else { None },
    })
}

/// An artifact with its values expanded.
fn expanded(artifact: &Artifact, words: ArtifactWords<'_>) -> Result<Artifact, TooLong> {
    let expand = |text: &str| environment::interpolate(text, words.env, words.node);
    let values = |map: &BTreeMap<String, String>| {
        map.iter().map(|(name, value)| Ok((name.clone(), expand(value)?))).collect::<Result<BTreeMap<_, _>, TooLong>>()
    };
    Ok(Artifact {
        getter_source: expand(&artifact.getter_source)?,
        getter_options: values(&artifact.getter_options)?,
        getter_headers: values(&artifact.getter_headers)?,
        relative_dest: expand(&artifact.relative_dest)?,
        ..artifact.clone()
    })
}
