//! Reads a state for one evaluation.

use super::{documents, object};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::num::NonZero;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use drover_api::{CSIVolume, Job};
use drover_core::definition::{Definition, is_same_version};
use drover_core::ids::{AllocKey, JobKey, Uid};
use drover_core::model::Alloc;
use drover_core::snapshot::ClusterView;
use drover_core::validate::{self, Violation};

use crate::state::documents::Document;
use crate::state::object::{Object, Recorded};
use drover_store::convert;

/// Fewest objects for which another thread pays.
const SHARE: usize = 256;

/// The state of a cluster, ready for an evaluation of one job.
#[derive(Debug)]
pub(crate) struct State {
    /// What the scheduler sees.
    pub(crate) view: ClusterView,
    /// The stored job that a submitted manifest stands in the place of.
    pub(crate) replaced: Option<Arc<Definition>>,
}

/// Reads a state for an evaluation of `target`. With `submitted`, that manifest stands in the place of the stored
/// job's.
pub(crate) fn load(bytes: &[u8], target: &JobKey, submitted: Option<Job>) -> anyhow::Result<State> {
    let documents = documents::read(bytes)?;
    ensure!(!documents.is_empty(), "the state holds no object; write one with `drover dump -A`");
    let mut parts = Parts::default();
    for object in read_all(&documents, target)? {
        parts.add(object)?;
    }
    if let Some(submitted) = submitted {
        parts.submit(submitted)?;
    }
    parts.into_state(target)
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

/// The objects, sorted by kind.
#[derive(Default)]
struct Parts {
    view: ClusterView,
    jobs: BTreeMap<JobKey, (Box<Job>, Arc<Definition>)>,
    versions: Vec<Recorded>,
    allocs: Vec<Alloc>,
    names: HashSet<(&'static str, String)>,
    going: BTreeSet<String>,
    replaced: Option<Arc<Definition>>,
}

impl Parts {
    fn add(&mut self, object: Object) -> anyhow::Result<()> {
        let (kind, name) = object.identity();
        ensure!(
            self.names.insert((kind, name.clone())),
            "{kind} {name}: metadata.name: is given twice in the state; keep one of the two"
        );
        match object {
            Object::Node(node) => self.view.put_node(*node),
            Object::Alloc(alloc) => self.allocs.push(*alloc),
            Object::Job(job, definition) => {
                self.jobs.insert(convert::object_key(&job.metadata), (job, definition));
            }
            Object::Version(version) => self.versions.push(*version),
            Object::Namespace { name, is_going } => {
                if is_going {
                    self.going.insert(name);
                }
            }
            Object::Deployment(deployment) => self.view.put_deployment(*deployment),
            Object::Volume(volume) => self.add_volume(volume)?,
            Object::HostVolume(volume) => self.view.host_volumes_mut().put(*volume),
            Object::Settings(settings) => self.view.set_settings(settings),
        }
        Ok(())
    }

    fn add_volume(&mut self, volume: Box<CSIVolume>) -> anyhow::Result<()> {
        let id = convert::volume_id(&volume);
        ensure!(
            self.view.volume(&id).is_none(),
            "CSIVolume {}: spec.id: {} is the id of another volume; give each its own",
            convert::object_key(&volume.metadata),
            id.name
        );
        self.view.put_volume(id, Arc::from(volume));
        Ok(())
    }

    /// Puts a manifest in the place of the stored job, whose identity and history stay.
    fn submit(&mut self, mut submitted: Job) -> anyhow::Result<()> {
        let key = convert::object_key(&submitted.metadata);
        let (stored, replaced): (Option<Box<Job>>, _) = self.jobs.remove(&key).unzip();
        self.replaced = replaced;
        let changes = validate::changes(stored.as_ref().map(|job| &job.spec), &submitted.spec);
        refuse(&key, &changes)?;
        if let Some(stored) = stored {
            submitted.metadata = stored.metadata;
            submitted.status = stored.status;
            if !is_same_version(&stored.spec, &submitted.spec) {
                submitted.metadata.generation =
                    submitted.metadata.generation.map(|generation| generation.saturating_add(1));
            }
            // Who scales a job at run time is not asked again by a manifest that says nothing about it.
            submitted.spec.scale = submitted.spec.scale.or(stored.spec.scale);
        }
        let definition = Definition::new(&submitted.spec, &key.name);
        self.jobs.insert(key, (Box::new(submitted), definition));
        Ok(())
    }

    fn into_state(mut self, target: &JobKey) -> anyhow::Result<State> {
        self.complete_uids();
        check_chains(&self.allocs)?;
        let mut versions: BTreeMap<JobKey, Vec<Recorded>> = BTreeMap::new();
        for version in self.versions {
            self.view.put_version(
                version.job.clone(),
                version.uid.clone(),
                version.number,
                Arc::clone(&version.definition),
            );
            versions.entry(version.job.clone()).or_default().push(version);
        }
        for (key, (job, fresh)) in self.jobs {
            let uid = convert::uid(&job.metadata);
            let mut recorded = versions.remove(&key).unwrap_or_default();
            recorded.retain(|version| version.uid == uid);
            recorded.sort_by_key(|version| version.number);
            check_numbers(&key, &recorded)?;
            let is_going = self.going.contains(&*key.namespace);
            let is_target = key == *target;
            let is_stopped = job.spec.stop || job.metadata.deletion_timestamp.is_some() || is_going;
            if is_target && !is_stopped {
                refuse(&key, &validate::violations(&fresh))?;
            }
            let (number, definition) = if is_target && !is_stopped {
                effective(&job, fresh, &recorded)
            } else {
                in_effect(&job, fresh, &recorded)
            };
            self.view.put_version(key.clone(), uid, number, Arc::clone(&definition));
            self.view.put_job(convert::job(&job, number, definition, is_going).0);
        }
        for alloc in self.allocs {
            self.view.put_alloc(alloc);
        }
        Ok(State { view: self.view, replaced: self.replaced })
    }

    /// A job that was written by hand has no uid: it is the one that its allocations and versions belong to. And where
    /// these were written by hand, they belong to the job that is there.
    fn complete_uids(&mut self) {
        let of_versions = self.versions.iter().map(|version| (&version.job, &version.uid));
        let of_allocs = self.allocs.iter().map(|alloc| (&alloc.job, &alloc.job_uid));
        let unnamed: BTreeSet<&JobKey> =
            self.jobs.iter().filter(|(_, (job, _))| job.metadata.uid.is_none()).map(|(key, _)| key).collect();
        let named = of_versions.chain(of_allocs).filter(|(job, uid)| unnamed.contains(job) && !uid.as_str().is_empty());
        let mut uids: BTreeMap<JobKey, Uid> = BTreeMap::new();
        for (job, uid) in named {
            uids.entry(job.clone()).or_insert_with(|| uid.clone());
        }
        for (key, (job, _)) in &mut self.jobs {
            let uid = uids.get(key).map_or_else(|| format!("uid-of-{}", key.name), ToString::to_string);
            job.metadata.uid.get_or_insert(uid);
        }
        let uid_of = |job: &JobKey| self.jobs.get(job).map(|(job, _)| convert::uid(&job.metadata));
        for version in self.versions.iter_mut().filter(|version| version.uid.as_str().is_empty()) {
            version.uid = uid_of(&version.job).unwrap_or_else(|| version.uid.clone());
        }
        for alloc in self.allocs.iter_mut().filter(|alloc| alloc.job_uid.as_str().is_empty()) {
            alloc.job_uid = uid_of(&alloc.job).unwrap_or_else(|| alloc.job_uid.clone());
        }
    }
}

/// The version in effect of a job that is only looked at.
fn in_effect(job: &Job, fresh: Arc<Definition>, recorded: &[Recorded]) -> (i64, Arc<Definition>) {
    let named = job.status.as_ref().and_then(|status| status.version);
    let version = recorded.iter().rev().find(|version| named.is_none_or(|named| named == version.number));
    match version.or(recorded.last()) {
        Some(version) => (version.number, Arc::clone(&version.definition)),
        None => (named.unwrap_or(0), fresh),
    }
}

/// The version that the job's spec is: the newest one where nothing changed, else the next one. A spec that was
/// reverted is not tried again until it changes.
fn effective(job: &Job, fresh: Arc<Definition>, recorded: &[Recorded]) -> (i64, Arc<Definition>) {
    let reverted = job.status.as_ref().and_then(|status| status.reverted_generation);
    if reverted.is_some() && reverted == job.metadata.generation {
        return in_effect(job, fresh, recorded);
    }
    match recorded.last() {
        Some(newest) if newest.spec.as_ref().is_some_and(|spec| is_same_version(spec, &job.spec)) => {
            (newest.number, Arc::clone(&newest.definition))
        }
        Some(newest) => (newest.number.saturating_add(1), fresh),
        None => (job.status.as_ref().and_then(|status| status.version).unwrap_or(0), fresh),
    }
}

fn check_numbers(job: &JobKey, recorded: &[Recorded]) -> anyhow::Result<()> {
    match recorded.windows(2).find(|pair| pair[0].number == pair[1].number) {
        None => Ok(()),
        Some(pair) => bail!(
            "JobVersion {}/{}: spec.version: is {}, which {} has too; keep one of the two",
            job.namespace,
            pair[1].name,
            pair[1].number,
            pair[0].name
        ),
    }
}

fn refuse(job: &JobKey, violations: &[Violation]) -> anyhow::Result<()> {
    if violations.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = violations.iter().map(|violation| format!("\n  {violation}")).collect();
    bail!("Job {job} is invalid:{}", list.concat())
}

/// Refuses allocations that replace one another in a circle. O(n).
fn check_chains(allocs: &[Alloc]) -> anyhow::Result<()> {
    let previous: HashMap<&AllocKey, AllocKey> = allocs
        .iter()
        .filter_map(|alloc| {
            let name = Arc::clone(alloc.previous.as_ref()?);
            Some((&alloc.key, AllocKey { namespace: Arc::clone(&alloc.key.namespace), name }))
        })
        .collect();
    let mut sound: HashSet<&AllocKey> = HashSet::new();
    for alloc in allocs {
        let mut chain: HashSet<&AllocKey> = HashSet::new();
        let mut here = &alloc.key;
        while let Some(before) = previous.get(here).filter(|_| !sound.contains(here)) {
            ensure!(
                chain.insert(here),
                "Allocation {here}: spec.previousAllocation: leads over {} back to itself; remove it from one of them",
                before.name
            );
            here = before;
        }
        sound.extend(chain);
    }
    Ok(())
}

/// The names of what a job belongs to, for a message when it is not there.
pub(crate) fn is_known(view: &ClusterView, job: &JobKey) -> bool {
    view.job(job).is_some() || view.allocs_of_job(job).next().is_some()
}
