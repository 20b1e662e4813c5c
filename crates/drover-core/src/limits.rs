//! How many allocations jobs may ask for, so that no tenant fills the cluster's memory (`spec/security.md` rule 14).
//!
//! Input: what each job asks for, as it changes. Output: whether a job is within the limits, else the violation; and
//! the jobs that may try again because others ask for less. What was admitted stays admitted: of two jobs that do not
//! fit together the later one waits. The work for a change does not depend on how many jobs there are.
//!
//! Must never know: how jobs are stored, or who wrote them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_api::job::JobType;
use serde::{Deserialize, Serialize};

use crate::definition::Definition;
use crate::ids::JobKey;
use crate::validate::Violation;

/// The limits, as the operator sets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    /// The most allocations that one service or batch job may ask for.
    pub allocations_per_job: i64,
    /// The most that the jobs of one namespace may ask for together.
    pub allocations_per_namespace: i64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { allocations_per_job: 10_000, allocations_per_namespace: 50_000 }
    }
}

/// How many allocations a job asks for: the counts of its groups, with the one that is scaled; on each of `n_nodes`
/// one per group for jobs that run on every node.
pub fn asked(definition: &Definition, scaled: Option<&(String, i64)>, n_nodes: usize) -> i64 {
    let spec = &definition.spec;
    match definition.job_type() {
        JobType::System | JobType::Sysbatch => {
            let groups = spec.groups.iter().filter(|group| group.count > 0).count();
            i64::try_from(groups.saturating_mul(n_nodes)).unwrap_or(i64::MAX)
        }
        JobType::Service | JobType::Batch => spec.groups.iter().fold(0, |sum: i64, group| {
            let scaled = scaled.filter(|(name, _)| *name == group.name).map(|(_, count)| *count);
            sum.saturating_add(scaled.unwrap_or(group.count).max(0))
        }),
    }
}

/// What the jobs of all namespaces ask for.
#[derive(Debug, Default)]
pub struct Asked {
    namespaces: BTreeMap<Arc<str>, InNamespace>,
}

/// What those of one namespace ask for.
#[derive(Debug, Default)]
struct InNamespace {
    total: i64,
    /// By name: what was admitted.
    admitted: BTreeMap<Arc<str>, i64>,
    /// How much more than it has a job was refused for the namespace's limit, the smallest first.
    waiting: BTreeSet<(i64, Arc<str>)>,
    /// The same by name.
    refused: BTreeMap<Arc<str>, i64>,
}

impl Asked {
    /// Takes over what an earlier leader admitted of a job, one version at a time: the most that one of them asked for,
    /// so that no other takes the place of what runs before the job itself is asked.
    pub fn restore(&mut self, job: &JobKey, asked: i64) {
        let namespace = self.namespaces.entry(Arc::clone(&job.namespace)).or_default();
        if namespace.admitted.get(&job.name).is_none_or(|had| *had < asked) {
            namespace.set(&job.name, asked);
        }
    }

    /// Asks for a job's allocations. One that is refused keeps what it had.
    ///
    /// # Errors
    /// Which limit it is over, by how much, and who may change that.
    pub fn admit(&mut self, job: &JobKey, job_type: JobType, asked: i64, limits: Limits) -> Result<(), Violation> {
        let namespace = self.namespaces.entry(Arc::clone(&job.namespace)).or_default();
        namespace.stop_waiting(&job.name);
        let had = namespace.admitted.get(&job.name).copied().unwrap_or(0);
        let runs_once_per_node = matches!(job_type, JobType::System | JobType::Sysbatch);
        if asked > limits.allocations_per_job && !runs_once_per_node {
            return Err(over("JobLimit", asked, "one job", limits.allocations_per_job, "limits.allocationsPerJob"));
        }
        let together = namespace.total.saturating_sub(had).saturating_add(asked);
        if asked > had && together > limits.allocations_per_namespace {
            namespace.waiting.insert((asked - had, Arc::clone(&job.name)));
            namespace.refused.insert(Arc::clone(&job.name), asked - had);
            let whole = format!("the jobs of namespace {} together", job.namespace);
            let setting = "limits.allocationsPerNamespace";
            return Err(over("NamespaceLimit", together, &whole, limits.allocations_per_namespace, setting));
        }
        namespace.set(&job.name, asked);
        Ok(())
    }

    /// The job asks for nothing any more: it is gone, stopped or done.
    pub fn release(&mut self, job: &JobKey) {
        let Some(namespace) = self.namespaces.get_mut(&job.namespace) else { return };
        namespace.stop_waiting(&job.name);
        namespace.total -= namespace.admitted.remove(&job.name).unwrap_or(0);
        if namespace.admitted.is_empty() && namespace.waiting.is_empty() {
            self.namespaces.remove(&job.namespace);
        }
    }

    /// Takes out the jobs of a namespace that were refused and fit now, the smallest first: they are to ask again.
    pub fn take_fitting(&mut self, name: &Arc<str>, limits: Limits) -> Vec<JobKey> {
        let Some(namespace) = self.namespaces.get_mut(name) else { return Vec::new() };
        let mut room = limits.allocations_per_namespace.saturating_sub(namespace.total);
        let mut fitting = Vec::new();
        while let Some((more, job)) = namespace.waiting.first().cloned().filter(|(more, _)| *more <= room) {
            room -= more;
            namespace.stop_waiting(&job);
            fitting.push(JobKey::new(Arc::clone(name), job));
        }
        fitting
    }
}

impl InNamespace {
    fn stop_waiting(&mut self, job: &Arc<str>) {
        if let Some(more) = self.refused.remove(job) {
            self.waiting.remove(&(more, Arc::clone(job)));
        }
    }

    fn set(&mut self, job: &Arc<str>, asked: i64) {
        let had = self.admitted.insert(Arc::clone(job), asked).unwrap_or(0);
        self.total = self.total.saturating_sub(had).saturating_add(asked);
    }
}

fn over(code: &'static str, asked: i64, who: &str, limit: i64, setting: &str) -> Violation {
    let message = format!(
        "{who} would have {asked} allocations, and the limit is {limit}: lower the counts, stop other jobs, or let the \
         administrator of drover raise {setting} in the controller's configuration"
    );
    Violation { code, field: "spec.groups".to_owned(), message }
}

#[cfg(test)]
mod tests {
    mod edges;

    use drover_api::job::JobSpec;
    use serde_json::json;

    use super::*;

    const LIMITS: Limits = Limits { allocations_per_job: 6, allocations_per_namespace: 10 };

    fn key(namespace: &str, name: &str) -> JobKey {
        JobKey::new(namespace, name)
    }

    fn definition(job_type: &str, counts: &[i64]) -> Arc<Definition> {
        let groups = counts.iter().enumerate().map(|(n, count)| {
            json!({ "name": format!("g{n}"), "count": count, "tasks": [{ "name": "t", "driver": "mock" }] })
        });
        let spec: JobSpec =
            serde_json::from_value(json!({ "type": job_type, "groups": groups.collect::<Vec<_>>() })).expect("a spec");
        Definition::new(&spec, "job")
    }

    #[test]
    fn a_job_asks_for_its_counts_and_a_system_job_for_every_node() {
        assert_eq!(asked(&definition("service", &[2, 3, 0]), None, 100), 5);
        assert_eq!(asked(&definition("batch", &[2, 3]), Some(&("g1".to_owned(), 9)), 100), 11);
        assert_eq!(asked(&definition("system", &[1, 1]), None, 100), 200);
        assert_eq!(asked(&definition("sysbatch", &[1, 0]), None, 100), 100);
    }

    #[test]
    fn the_later_of_two_jobs_that_do_not_fit_waits_until_there_is_room() {
        let mut all = Asked::default();
        let service = JobType::Service;
        assert_eq!(all.admit(&key("a", "one"), service, 6, LIMITS), Ok(()));
        let error = all.admit(&key("a", "two"), service, 5, LIMITS).expect_err("over");
        assert_eq!((error.code, error.field.as_str()), ("NamespaceLimit", "spec.groups"));
        assert!(error.message.contains("11 allocations") && error.message.contains("limit is 10"), "{error}");
        assert_eq!(all.admit(&key("b", "two"), service, 5, LIMITS), Ok(()), "another namespace has its own");
        let error = all.admit(&key("a", "big"), service, 7, LIMITS).expect_err("over");
        assert_eq!(error.code, "JobLimit");
        assert_eq!(all.admit(&key("a", "three"), service, 4, LIMITS), Ok(()), "what fits goes on");
        assert_eq!(all.take_fitting(&"a".into(), LIMITS), []);
        all.release(&key("a", "three"));
        assert_eq!(all.take_fitting(&"a".into(), LIMITS), [], "5 do not fit in 4");
        assert_eq!(all.admit(&key("a", "one"), service, 1, LIMITS), Ok(()));
        assert_eq!(all.take_fitting(&"a".into(), LIMITS), [key("a", "two")]);
        assert_eq!(all.take_fitting(&"a".into(), LIMITS), [], "it is told once");
        assert_eq!(all.admit(&key("a", "two"), service, 5, LIMITS), Ok(()));
    }

    #[test]
    fn what_runs_is_never_refused_for_asking_less_or_the_same() {
        let mut all = Asked::default();
        all.restore(&key("a", "old"), 30);
        assert_eq!(all.admit(&key("a", "old"), JobType::System, 30, LIMITS), Ok(()));
        assert_eq!(all.admit(&key("a", "old"), JobType::System, 29, LIMITS), Ok(()));
        all.admit(&key("a", "old"), JobType::System, 31, LIMITS).expect_err("more");
        all.restore(&key("a", "old"), 1);
        let mut grown = Asked::default();
        grown.restore(&key("a", "old"), 2);
        grown.restore(&key("a", "old"), 6);
        grown.admit(&key("a", "new"), JobType::Service, 5, LIMITS).expect_err("the version that runs asks for 6");
        all.admit(&key("a", "new"), JobType::Service, 1, LIMITS).expect_err("what was known counts");
    }

    /// The slow reading: a list of who was admitted with how much.
    #[derive(Default)]
    struct Slow(Vec<(JobKey, i64)>);

    impl Slow {
        fn admit(&mut self, job: &JobKey, asked: i64) -> bool {
            let had = self.has(job);
            let others: i64 =
                self.0.iter().filter(|(one, _)| one.namespace == job.namespace && one != job).map(|(_, n)| n).sum();
            let fits = asked <= had || others + asked <= LIMITS.allocations_per_namespace;
            let fits = fits && asked <= LIMITS.allocations_per_job;
            if fits {
                self.release(job);
                self.0.push((job.clone(), asked));
            }
            fits
        }

        fn has(&self, job: &JobKey) -> i64 {
            self.0.iter().filter(|(one, _)| one == job).map(|(_, n)| n).sum()
        }

        fn release(&mut self, job: &JobKey) {
            self.0.retain(|(one, _)| one != job);
        }
    }

    #[test]
    fn sums_that_are_kept_are_those_that_are_counted() {
        let mut rng = fastrand::Rng::with_seed(14);
        for _ in 0..200 {
            let (mut all, mut slow) = (Asked::default(), Slow::default());
            let mut refused: Vec<(JobKey, i64)> = Vec::new();
            for _ in 0..60 {
                let job = key(["a", "b"][rng.usize(..2)], ["v", "w", "x", "y", "z"][rng.usize(..5)]);
                refused.retain(|(one, _)| *one != job);
                if rng.u8(..4) == 0 {
                    all.release(&job);
                    slow.release(&job);
                } else {
                    let asked = rng.i64(0..8);
                    let verdict = all.admit(&job, JobType::Batch, asked, LIMITS);
                    assert_eq!(verdict.is_ok(), slow.admit(&job, asked), "{job} asks for {asked}: {:?}", slow.0);
                    if verdict.is_err_and(|error| error.code == "NamespaceLimit") {
                        refused.push((job, asked));
                    }
                }
                let name: Arc<str> = ["a", "b"][rng.usize(..2)].into();
                let total: i64 = slow.0.iter().filter(|(one, _)| one.namespace == name).map(|(_, n)| n).sum();
                let mut room = LIMITS.allocations_per_namespace - total;
                let mut wanted: Vec<(i64, JobKey)> = refused
                    .iter()
                    .filter(|(one, _)| one.namespace == name)
                    .map(|(one, asked)| (asked - slow.has(one), one.clone()))
                    .collect();
                wanted.sort();
                wanted.retain(|(more, _)| {
                    room -= more;
                    room >= 0
                });
                let told = all.take_fitting(&name, LIMITS);
                assert_eq!(told, wanted.into_iter().map(|(_, job)| job).collect::<Vec<_>>());
                refused.retain(|(one, _)| !told.contains(one));
            }
        }
    }
}
