//! What the scheduler sees of a cluster in which one job is looked at, and another spec may stand in its place.
//!
//! Input: the objects, one after the other, as [`crate::convert`] gives them. Output: a view, and the definition that a
//! submitted job replaces. What is merely missing (a node that is gone, a job that was deleted) is part of the picture.
//! Must never know where objects come from, nor how a plan is made.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use drover_api::{CSIVolume, Job, JobSpec};
use drover_core::definition::{Definition, is_same_version};
use drover_core::host_volume::known::KnownVolume;
use drover_core::ids::{AllocKey, JobKey, Uid};
use drover_core::model::{self, Alloc, Node};
use drover_core::settings::Settings;
use drover_core::snapshot::ClusterView;
use drover_core::validate::{self, Violation};

use crate::convert;

/// The uid of a job that is not there yet: none of the allocations that are left of another one of its name is its
/// own.
const NOT_YET: &str = "not-yet";

/// Why there is no plan: an object, its field, and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PlanFault(String);

/// A version of a job.
#[derive(Debug)]
pub struct RecordedVersion {
    /// The name of its object.
    pub name: String,
    /// Whose version it is.
    pub job: JobKey,
    /// The uid of that job.
    pub uid: Uid,
    /// Its number.
    pub number: i64,
    /// What it asks for.
    pub definition: Arc<Definition>,
    /// As it was written; only that of the job that is looked at counts.
    pub spec: Option<JobSpec>,
}

/// A cluster, ready for an evaluation of one job.
#[derive(Debug)]
pub struct PlannedState {
    /// What the scheduler sees.
    pub view: ClusterView,
    /// The job that a submitted one stands in the place of.
    pub replaced: Option<Arc<Definition>>,
}

/// The objects of a cluster, sorted by kind.
#[derive(Debug, Default)]
pub struct PlanParts {
    view: ClusterView,
    jobs: BTreeMap<JobKey, (Box<Job>, Arc<Definition>)>,
    versions: Vec<RecordedVersion>,
    allocs: Vec<Alloc>,
    going: BTreeSet<String>,
    replaced: Option<Arc<Definition>>,
}

impl PlanParts {
    /// Adds a node.
    pub fn node(&mut self, node: Node) {
        self.view.put_node(node);
    }

    /// Adds an allocation.
    pub fn alloc(&mut self, alloc: Alloc) {
        self.allocs.push(alloc);
    }

    /// Adds a job with what its spec asks for.
    pub fn job(&mut self, job: Box<Job>, definition: Arc<Definition>) {
        self.jobs.insert(convert::object_key(&job.metadata), (job, definition));
    }

    /// Adds a version of a job.
    pub fn version(&mut self, version: RecordedVersion) {
        self.versions.push(version);
    }

    /// Adds a namespace that is being deleted.
    pub fn namespace_is_going(&mut self, name: String) {
        self.going.insert(name);
    }

    /// Adds a deployment.
    pub fn deployment(&mut self, deployment: model::Deployment) {
        self.view.put_deployment(deployment);
    }

    /// Adds a host volume.
    pub fn host_volume(&mut self, volume: KnownVolume) {
        self.view.host_volumes_mut().put(volume);
    }

    /// Says what the operator has set.
    pub fn settings(&mut self, settings: Settings) {
        self.view.set_settings(settings);
    }

    /// Adds a volume.
    ///
    /// # Errors
    /// When another one has its id; that one stays.
    pub fn volume(&mut self, volume: Arc<CSIVolume>) -> Result<(), PlanFault> {
        let id = convert::volume_id(&volume);
        if self.view.volume(&id).is_some() {
            return Err(PlanFault(format!(
                "CSIVolume {}: spec.id: {} is the id of another volume; give each its own",
                convert::object_key(&volume.metadata),
                id.name
            )));
        }
        self.view.put_volume(id, volume);
        Ok(())
    }

    /// Puts a job in the place of the stored one, whose identity and history stay.
    ///
    /// # Errors
    /// When the stored one may not become it.
    pub fn submit(&mut self, mut submitted: Job) -> Result<(), PlanFault> {
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
        } else {
            submitted.metadata.uid.get_or_insert_with(|| NOT_YET.to_owned());
        }
        let definition = Definition::new(&submitted.spec, &key.name);
        self.jobs.insert(key, (Box::new(submitted), definition));
        Ok(())
    }

    /// The cluster for an evaluation of `target`.
    ///
    /// # Errors
    /// When that job is invalid, two versions of a job have one number, or allocations replace one another in a circle.
    pub fn state(mut self, target: &JobKey) -> Result<PlannedState, PlanFault> {
        self.complete_uids();
        check_chains(&self.allocs)?;
        let mut versions: BTreeMap<JobKey, Vec<RecordedVersion>> = BTreeMap::new();
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
        Ok(PlannedState { view: self.view, replaced: self.replaced })
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
fn in_effect(job: &Job, fresh: Arc<Definition>, recorded: &[RecordedVersion]) -> (i64, Arc<Definition>) {
    let named = job.status.as_ref().and_then(|status| status.version);
    let version = recorded.iter().rev().find(|version| named.is_none_or(|named| named == version.number));
    match version.or(recorded.last()) {
        Some(version) => (version.number, Arc::clone(&version.definition)),
        None => (named.unwrap_or(0), fresh),
    }
}

/// The version that the job's spec is: the newest one where nothing changed, else the next one. A spec that was
/// reverted is not tried again until it changes.
fn effective(job: &Job, fresh: Arc<Definition>, recorded: &[RecordedVersion]) -> (i64, Arc<Definition>) {
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

fn check_numbers(job: &JobKey, recorded: &[RecordedVersion]) -> Result<(), PlanFault> {
    match recorded.windows(2).find(|pair| pair[0].number == pair[1].number) {
        None => Ok(()),
        Some(pair) => Err(PlanFault(format!(
            "JobVersion {}/{}: spec.version: is {}, which {} has too; keep one of the two",
            job.namespace, pair[1].name, pair[1].number, pair[0].name
        ))),
    }
}

fn refuse(job: &JobKey, violations: &[Violation]) -> Result<(), PlanFault> {
    if violations.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = violations.iter().map(|violation| format!("\n  {violation}")).collect();
    Err(PlanFault(format!("Job {job} is invalid:{}", list.concat())))
}

/// Refuses allocations that replace one another in a circle. O(n).
fn check_chains(allocs: &[Alloc]) -> Result<(), PlanFault> {
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
            if !chain.insert(here) {
                return Err(PlanFault(format!(
                    "Allocation {here}: spec.previousAllocation: leads over {} back to itself; remove it from one of them",
                    before.name
                )));
            }
            here = before;
        }
        sound.extend(chain);
    }
    Ok(())
}
