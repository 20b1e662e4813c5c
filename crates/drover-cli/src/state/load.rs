//! Reads a state for one evaluation.

use super::{documents, object};
use std::collections::HashSet;
use std::num::NonZero;
use std::sync::Arc;

use anyhow::{Context, ensure};
use drover_api::Job;
use drover_core::ids::JobKey;
use drover_core::snapshot::ClusterView;
use drover_store::planned::{PlanParts, PlannedState};

use crate::state::documents::Document;
use crate::state::object::Object;

/// Fewest objects for which another thread pays.
const SHARE: usize = 256;

/// Reads a state for an evaluation of `target`. With `submitted`, that manifest stands in the place of the stored
/// job's.
pub(crate) fn load(bytes: &[u8], target: &JobKey, submitted: Option<Job>) -> anyhow::Result<PlannedState> {
    let documents = documents::read(bytes)?;
    ensure!(!documents.is_empty(), "the state holds no object; write one with `drover dump -A`");
    let mut parts = Parts::default();
    for object in read_all(&documents, target)? {
        parts.add(object)?;
    }
    if let Some(submitted) = submitted {
        parts.planned.submit(submitted)?;
    }
    Ok(parts.planned.state(target)?)
}

/// Parses all documents, on all cores. The first error in the order of the file counts.
fn read_all(documents: &[Document<'_>], target: &JobKey) -> anyhow::Result<Vec<Object>> {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    let share = documents.len().div_ceil(cores).max(SHARE);
    let read = |share: &[Document<'_>]| -> anyhow::Result<Vec<Object>> {
        share.iter().map(|document| object::read(document, target).with_context(|| document.to_string())).collect()
    };
    std::thread::scope(|scope| {
        let (first, rest) = documents.split_at(share.min(documents.len()));
        let others: Vec<_> = rest.chunks(share).map(|share| scope.spawn(move || read(share))).collect();
        let mut objects = read(first)?;
        for other in others {
            objects.extend(other.join().map_err(|_| anyhow::anyhow!("a thread that reads the state ended"))??);
        }
        Ok(objects)
    })
}

/// The objects, each once.
#[derive(Default)]
struct Parts {
    planned: PlanParts,
    names: HashSet<(&'static str, String)>,
}

impl Parts {
    fn add(&mut self, object: Object) -> anyhow::Result<()> {
        let (kind, name) = object.identity();
        ensure!(
            self.names.insert((kind, name.clone())),
            "{kind} {name}: metadata.name: is given twice in the state; keep one of the two"
        );
        let planned = &mut self.planned;
        match object {
            Object::Node(node) => planned.node(*node),
            Object::Alloc(alloc) => planned.alloc(*alloc),
            Object::Job(job, definition) => planned.job(job, definition),
            Object::Version(version) => planned.version(*version),
            Object::Namespace { name, is_going } => {
                if is_going {
                    planned.namespace_is_going(name);
                }
            }
            Object::Deployment(deployment) => planned.deployment(*deployment),
            Object::Volume(volume) => planned.volume(Arc::from(volume))?,
            Object::HostVolume(volume) => planned.host_volume(*volume),
            Object::Settings(settings) => planned.settings(settings),
        }
        Ok(())
    }
}

/// The names of what a job belongs to, for a message when it is not there.
pub(crate) fn is_known(view: &ClusterView, job: &JobKey) -> bool {
    view.job(job).is_some() || view.allocs_of_job(job).next().is_some()
}
