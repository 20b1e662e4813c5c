//! What a job needs before it is planned: its finalizer, and the version that its spec is.

use std::sync::Arc;

use drover_api::job_version::JobVersionSpec;
use drover_api::{Job, JobSpec, JobVersion, finalizer, names};
use drover_core::definition::{Definition, is_same_version, version_spec};
use drover_core::ids::JobKey;
use jiff::Timestamp;
use kube::Resource;
use kube::core::ObjectMeta;
use serde_json::json;

use drover_store::{Key, Part, Precondition, Store, StoreError, status_body};

/// Most versions that are kept without another reason.
pub(crate) const KEPT_VERSIONS: usize = 6;

/// What is missing before a job can be planned.
#[derive(Debug)]
pub(crate) struct Preparation {
    /// The job.
    pub(crate) job: JobKey,
    object: Arc<Job>,
    needs_finalizer: bool,
    version: Option<Recording>,
}

/// What is to be written of a version.
#[derive(Debug)]
enum Recording {
    /// The spec is none yet. Where it `inherits`, it is stable because the one before is.
    Create { version: Box<JobVersion>, inherits: bool },
    /// It is there, and to be marked as stable.
    Mark(Arc<JobVersion>),
}

/// What became of it.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    /// The job as it is now.
    pub(crate) job: Option<Job>,
    /// The version that was made.
    pub(crate) version: Option<JobVersion>,
    /// What did not happen.
    pub(crate) error: Option<StoreError>,
}

/// The version of a job that its spec is, or what must be written first.
///
/// `versions` are those of this incarnation, oldest first; `known` has their definitions, whose digests are computed
/// once.
pub(crate) fn prepare(
    key: &JobKey,
    object: &Arc<Job>,
    versions: &[Arc<JobVersion>],
    now: Timestamp,
    known: impl Fn(&JobVersion) -> Arc<Definition>,
) -> Result<Arc<JobVersion>, Box<Preparation>> {
    let needs_finalizer =
        object.meta().deletion_timestamp.is_none() && !finalizer::is_held(object.meta(), finalizer::STOP_ALLOCATIONS);
    let newest = versions.last();
    let is_recorded = newest.is_some_and(|version| {
        is_same_version(&version.spec.job, &object.spec) || stands_for(version, versions, object)
    });
    let version = match newest {
        Some(version) if is_recorded => {
            let is_unmarked = is_unmarked(version, versions, known);
            if !needs_finalizer && !is_unmarked {
                return Ok(Arc::clone(version));
            }
            is_unmarked.then(|| Recording::Mark(Arc::clone(version)))
        }
        _ => {
            let number = newest.map_or(0, |version| version.spec.version + 1);
            let inherits = newest.is_some_and(|newest| inherits(newest, &object.spec));
            Some(Recording::Create { version: Box::new(new_version(object, number, now)), inherits })
        }
    };
    Err(Box::new(Preparation { job: key.clone(), object: Arc::clone(object), needs_finalizer, version }))
}

/// Whether a version was recorded and not marked as stable although the one before is and nodes act on the same: the
/// second of the two writes did not happen.
fn is_unmarked(
    version: &JobVersion,
    versions: &[Arc<JobVersion>],
    known: impl Fn(&JobVersion) -> Arc<Definition>,
) -> bool {
    let before = versions.len().checked_sub(2).map(|at| &versions[at]);
    version.status.as_ref().is_none_or(|status| status.observed_generation < 0)
        && before.is_some_and(|before| before.is_stable() && known(before).is_same_work(&known(version)))
}

/// Whether the job is older than one of its versions: a list can be stale, and an earlier leader has recorded a newer
/// spec since. Taken for what people want now, the old spec would become the newest version.
pub(crate) fn is_behind(object: &Job, versions: &[Arc<JobVersion>]) -> bool {
    versions.iter().any(|version| Some(version.spec.job_generation) > object.metadata.generation)
}

/// Whether a version that an automatic revert made is still the one to run: until the spec differs from the one that
/// failed, which a re-apply of the same manifest does not make it do.
pub(crate) fn stands_for(version: &JobVersion, versions: &[Arc<JobVersion>], object: &Job) -> bool {
    if version.spec.intent.is_empty() {
        return false;
    }
    let failed = versions.iter().rfind(|one| one.spec.version < version.spec.version);
    let is_same = failed.is_some_and(|failed| is_same_version(&failed.spec.job, &object.spec));
    is_same || Some(version.spec.job_generation) == object.metadata.generation
}

/// Whether a new version needs no deployment of its own, so that it is as stable as the one before: what nodes act on
/// is the same.
fn inherits(before: &JobVersion, spec: &JobSpec) -> bool {
    let name = &before.spec.job_name;
    before.is_stable() && Definition::new(&before.spec.job, name).is_same_work(&Definition::new(spec, name))
}

/// The version that an automatic revert makes: the spec of a stable one under the next number.
pub(crate) fn restored_version(
    job: &Job,
    stable: &JobVersion,
    number: i64,
    intent: &str,
    now: Timestamp,
) -> JobVersion {
    let mut version = new_version(job, number, now);
    version.spec = JobVersionSpec {
        job: stable.spec.job.clone(),
        group_names: stable.spec.group_names.clone(),
        revert_of: Some(stable.spec.version),
        intent: intent.to_owned(),
        ..version.spec
    };
    version
}

/// Marks a version as deployed successfully.
pub(crate) async fn mark_stable<S: Store>(store: &S, version: &JobVersion) -> Result<JobVersion, StoreError> {
    let status = json!({
        "observedGeneration": version.metadata.generation,
        "stable": true,
        "columns": { "stable": "true" },
    });
    let same = Precondition::same_object(&version.metadata);
    let key = drover_store::Object::key(version);
    store.merge::<JobVersion>(&key, Part::Status, &same, status_body(status)).await
}

fn new_version(job: &Job, number: i64, now: Timestamp) -> JobVersion {
    let meta = job.meta();
    let name = meta.name.clone().unwrap_or_default();
    let groups: Vec<&str> = job.spec.groups.iter().map(|group| group.name.as_str()).collect();
    let spec = JobVersionSpec {
        job_name: name.clone(),
        job_uid: meta.uid.clone().unwrap_or_default(),
        version: number,
        job_generation: meta.generation.unwrap_or(0),
        group_names: groups.join(","),
        job: version_spec(&job.spec),
        submitted_at: now,
        revert_of: None,
        intent: String::new(),
    };
    let mut version = JobVersion::new(&names::job_version_name(&name, number), spec);
    version.metadata = ObjectMeta {
        name: version.metadata.name.take(),
        namespace: meta.namespace.clone(),
        owner_references: Some(vec![drover_api::owner::owner(job)]),
        ..ObjectMeta::default()
    };
    version
}

impl Preparation {
    /// Writes the finalizer and the version beside each other: either alone is where the next evaluation goes on, and
    /// nothing is placed before both are there.
    pub(crate) async fn write<S: Store>(self, store: S) -> (JobKey, Prepared) {
        let (held, recorded) = tokio::join!(self.hold(&store), self.record(&store));
        let mut done = Prepared::default();
        match held {
            Ok(job) => done.job = job,
            Err(error) => done.error = Some(error),
        }
        match recorded {
            Ok(version) => done.version = version,
            // That the job is gone says more than what becomes of its version.
            Err(error) => done.error = done.error.or(Some(error)),
        }
        (self.job, done)
    }

    /// Puts the finalizer on the job where it lacks it.
    async fn hold<S: Store>(&self, store: &S) -> Result<Option<Job>, StoreError> {
        if !self.needs_finalizer {
            return Ok(None);
        }
        let key = Key::namespaced(&*self.job.namespace, &*self.job.name);
        let mut finalizers = self.object.meta().finalizers.clone().unwrap_or_default();
        finalizers.push(finalizer::STOP_ALLOCATIONS.to_owned());
        let body = json!({ "metadata": { "finalizers": finalizers } });
        store.merge::<Job>(&key, Part::Spec, &Precondition::unchanged(self.object.meta()), body).await.map(Some)
    }

    /// Records the spec as a version where it is none yet, and as a stable one where that is known.
    async fn record<S: Store>(&self, store: &S) -> Result<Option<JobVersion>, StoreError> {
        match &self.version {
            None => Ok(None),
            Some(Recording::Mark(version)) => mark_stable(store, version).await.map(Some),
            Some(Recording::Create { version, inherits }) => {
                let made = create_version(store, (**version).clone()).await?;
                if *inherits { mark_stable(store, &made).await.map(Some) } else { Ok(Some(made)) }
            }
        }
    }
}

/// Creates a version. One of its name and incarnation that exists already is the answer; one of another incarnation is
/// in the way and is deleted.
pub(crate) async fn create_version<S: Store>(store: &S, version: JobVersion) -> Result<JobVersion, StoreError> {
    match store.create(&version).await {
        Err(StoreError::AlreadyExists(text)) => {
            let key = drover_store::Object::key(&version);
            let existing = store.get::<JobVersion>(&key).await?.ok_or(StoreError::Unavailable(text))?;
            if existing.spec.job_uid == version.spec.job_uid {
                return Ok(existing);
            }
            store.delete::<JobVersion>(&key, &Precondition::same_object(&existing.metadata)).await?;
            Err(StoreError::Unavailable(format!("{key} belongs to an earlier job of this name and is being removed")))
        }
        other => other,
    }
}

/// Versions that nothing keeps any more: beyond the newest six, of which tagged ones are none, and named by no
/// allocation. Where the newest stable one is older it stays, and its neighbour goes in its place (`spec/scheduler.md`
/// 1).
pub(crate) fn surplus(versions: &[Arc<JobVersion>], is_in_use: impl Fn(i64) -> bool) -> Vec<&Arc<JobVersion>> {
    let newest_stable = versions.iter().rfind(|version| version.is_stable()).map(|version| version.spec.version);
    let is_newest_stable = |version: &&Arc<JobVersion>| Some(version.spec.version) == newest_stable;
    let untagged: Vec<_> = versions.iter().filter(|version| version.tag().is_none()).collect();
    let over = untagged.len().saturating_sub(KEPT_VERSIONS);
    let over = over + usize::from(untagged[..over].iter().any(is_newest_stable));
    let older = untagged.into_iter().take(over);
    older.filter(|version| !is_newest_stable(version) && !is_in_use(version.spec.version)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(image: &str) -> Arc<Job> {
        let spec = serde_json::from_value(json!({ "groups": [{ "name": "g", "tasks": [
            { "name": "t", "driver": "mock", "config": { "image": image } }] }] }));
        let mut job = Job::new("web", spec.unwrap());
        job.metadata.uid = Some("u".to_owned());
        job.metadata.finalizers = Some(vec![finalizer::STOP_ALLOCATIONS.to_owned()]);
        Arc::new(job)
    }

    fn key() -> JobKey {
        JobKey::new("ns", "web")
    }

    fn prepared(job: &Arc<Job>, versions: &[Arc<JobVersion>]) -> Result<Arc<JobVersion>, Box<Preparation>> {
        let known = |version: &JobVersion| Definition::new(&version.spec.job, &version.spec.job_name);
        prepare(&key(), job, versions, Timestamp::UNIX_EPOCH, known)
    }

    /// The version that is made for a job which has these.
    fn made(job: &Arc<Job>, versions: &[Arc<JobVersion>]) -> JobVersion {
        match prepared(job, versions).unwrap_err().version {
            Some(Recording::Create { version, .. }) => *version,
            other => panic!("no version is made: {other:?}"),
        }
    }

    fn stable(version: JobVersion) -> Arc<JobVersion> {
        let status = drover_api::job_version::JobVersionStatus { stable: true, ..Default::default() };
        Arc::new(JobVersion { status: Some(status), ..version })
    }

    #[test]
    fn a_version_that_inherits_is_marked_until_it_is_and_never_against_what_a_user_says() {
        let mut changed = (*job("a")).clone();
        changed.spec.groups[0].count = 2;
        let changed = Arc::new(changed);
        let zero = stable(made(&job("a"), &[]));
        let unmarked = made(&changed, std::slice::from_ref(&zero));
        let marks = |versions: &[Arc<JobVersion>], job: &Arc<Job>| match prepared(job, versions) {
            Ok(_) => false,
            Err(preparation) => matches!(preparation.version, Some(Recording::Mark(_))),
        };
        let one = Arc::new(unmarked.clone());
        assert!(marks(&[Arc::clone(&zero), Arc::clone(&one)], &changed), "its second write did not happen");
        assert!(!marks(&[Arc::clone(&zero), stable(unmarked.clone())], &changed));
        let seen = drover_api::job_version::JobVersionStatus { observed_generation: 1, ..Default::default() };
        let refused = JobVersion { status: Some(seen), ..unmarked };
        assert!(!marks(&[Arc::clone(&zero), Arc::new(refused)], &changed), "a user called it unstable");
        assert!(!marks(&[Arc::new(JobVersion { status: None, ..JobVersion::clone(&zero) }), one], &changed));
        let other = Arc::new(made(&job("b"), std::slice::from_ref(&zero)));
        assert!(!marks(&[zero, other], &job("b")), "other work has to show that it is stable");
    }

    #[test]
    fn s_189_a_changed_spec_is_a_new_version_and_the_same_one_is_evaluated_in_the_old() {
        let first = job("a");
        let zero = made(&first, &[]);
        assert_eq!(zero.metadata.name.as_deref(), Some("web-v0"));
        let versions = [Arc::new(zero)];
        assert_eq!(prepared(&first, &versions).unwrap().spec.version, 0);
        let one = made(&job("b"), &versions);
        assert_eq!(one.spec.version, 1);
    }

    #[test]
    fn a_job_older_than_its_newest_version_is_a_stale_one() {
        let first = job("a");
        let of = |generation: i64| {
            let mut job = Job::clone(&first);
            job.metadata.generation = Some(generation);
            Arc::new(job)
        };
        let versions = [Arc::new(made(&of(2), &[]))];
        assert!(is_behind(&of(1), &versions));
        assert!(!is_behind(&of(2), &versions) && !is_behind(&of(3), &versions) && !is_behind(&of(1), &[]));
    }

    #[test]
    fn scaling_and_stopping_make_no_version() {
        let first = job("a");
        let versions = [Arc::new(made(&first, &[]))];
        let mut scaled = (*first).clone();
        scaled.spec.stop = true;
        scaled.spec.scale = Some(drover_api::job::Scale { group: String::new(), count: Some(7) });
        assert_eq!(prepared(&Arc::new(scaled), &versions).unwrap().spec.version, 0);
    }

    #[test]
    fn the_newest_six_stay_and_besides_them_whatever_allocations_name() {
        let mut versions: Vec<_> =
            (0..9).map(|number| Arc::new(new_version(&job("a"), number, Timestamp::UNIX_EPOCH))).collect();
        let goes = |versions: &[Arc<JobVersion>], in_use: &[i64]| -> Vec<i64> {
            surplus(versions, |number| in_use.contains(&number)).iter().map(|version| version.spec.version).collect()
        };
        assert_eq!(goes(&versions, &[]), [0, 1, 2]);
        assert_eq!(goes(&versions, &[1, 8]), [0, 2]);
        // The newest one, of which there is no allocation yet, is what the job's next allocations need.
        assert!(goes(&versions[..7], &[0, 1, 2, 3, 4, 5]).is_empty());
        versions[0] = stable(JobVersion::clone(&versions[0]));
        assert_eq!(goes(&versions, &[]), [1, 2, 3], "its neighbour goes in the place of the newest stable one");
    }

    #[test]
    fn versions_with_a_tag_stay_beside_the_newest_six() {
        let mut versions: Vec<_> =
            (0..9).map(|number| Arc::new(new_version(&job("a"), number, Timestamp::UNIX_EPOCH))).collect();
        let tag = Some("golden".to_owned());
        let status = drover_api::job_version::JobVersionStatus { tag, ..Default::default() };
        versions[1] = Arc::new(JobVersion { status: Some(status), ..JobVersion::clone(&versions[1]) });
        let gone: Vec<i64> = surplus(&versions, |_| false).iter().map(|version| version.spec.version).collect();
        assert_eq!(gone, [0, 2]);
    }
}
