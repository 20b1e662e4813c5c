//! What a term counts for its operators: each change is counted as it is taken in, however many objects there are.
//! Nothing is decided here, and without anybody to tell nothing is counted.

use std::collections::HashMap;
use std::time::Duration;

use drover_api::{Allocation, CSIVolume, ClientNode, Deployment, Job};
use drover_core::deployment::StepNotice;
use drover_core::ids::JobKey;
use drover_daemon::monitor::Metrics;
use drover_store::{ErrorClass, StoreError};
use tokio::time::Instant;

use crate::actions::Done;
use crate::cache::Observed;
use crate::services::EndpointsError;

/// Where a term's recorder go.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) metrics: Option<Metrics>,
    /// Whether jobs are named.
    per_job: bool,
    /// Since when jobs wait for their turn; as many as wait.
    pub(crate) asked_at: HashMap<JobKey, Instant>,
}

impl Recorder {
    /// A recorder for one controller, with jobs by name or without.
    pub(crate) fn of(metrics: Option<Metrics>, per_job: bool) -> Self {
        Self { metrics, per_job, asked_at: HashMap::new() }
    }

    /// An evaluation of a job is wanted; it may have been before.
    pub(crate) fn asked(&mut self, job: &JobKey) {
        if self.metrics.is_some() {
            self.asked_at.entry(job.clone()).or_insert_with(Instant::now);
        }
    }

    /// A node is new, changed or gone.
    pub(crate) fn node(&self, seen: &Observed<ClientNode>) {
        let Some(metrics) = &self.metrics else { return };
        moved(seen, |node, more| {
            let phase = node.status.as_ref().map_or("initializing", |status| status.phase.as_str());
            metrics.nodes(&node.spec.node_pool, phase, more);
        });
    }

    /// A node of this pool was silent for too long.
    pub(crate) fn silent(&self, pool: &str) {
        if let Some(metrics) = &self.metrics {
            metrics.heartbeat_missed(pool);
        }
    }

    /// An allocation is new, changed or gone.
    pub(crate) fn allocation(&self, seen: &Observed<Allocation>) {
        let Some(metrics) = &self.metrics else { return };
        moved(seen, |alloc, more| {
            metrics.allocations(alloc.status.as_ref().map_or("pending", |status| status.client_status.as_str()), more);
        });
    }

    /// A deployment is new, changed or gone.
    pub(crate) fn deployment(&self, seen: &Observed<Deployment>) {
        let Some(metrics) = &self.metrics else { return };
        moved(seen, |deployment, more| {
            metrics
                .deployments(deployment.status.as_ref().map_or("initializing", |status| status.phase.as_str()), more);
        });
    }

    /// A deployment's status is written, with this to be told of it.
    pub(crate) fn stepped<'a>(&self, notices: impl Iterator<Item = &'a StepNotice>) {
        let Some(metrics) = &self.metrics else { return };
        let mut causes = notices.map(cause).peekable();
        if causes.peek().is_none() {
            metrics.deployment_stepped("progress");
        }
        for cause in causes {
            metrics.deployment_stepped(cause);
        }
    }

    /// A volume is new, changed or gone.
    pub(crate) fn volume(&self, seen: &Observed<CSIVolume>) {
        let Some(metrics) = &self.metrics else { return };
        moved(seen, |volume, more| {
            for claim in volume.status.iter().flat_map(|status| &status.claims) {
                metrics.volume_claims(claim.state.as_str(), more);
            }
        });
    }

    /// A step of a claim's release was done after this time.
    pub(crate) fn reaped(&self, step: &'static str, took: Duration) {
        if let Some(metrics) = &self.metrics {
            metrics.reaped(step, took);
        }
    }

    /// A job is new, changed or gone.
    pub(crate) fn job(&self, seen: &Observed<Job>) {
        let Some(metrics) = self.metrics.as_ref().filter(|_| self.per_job) else { return };
        moved(seen, |job, more| {
            let of = |text: &Option<String>| text.clone().unwrap_or_default();
            let (namespace, name) = (of(&job.metadata.namespace), of(&job.metadata.name));
            let count = if more > 0 { Metrics::job_there } else { Metrics::job_gone };
            count(metrics, &namespace, &name, job.spec.r#type.as_str());
        });
    }

    /// A write that followed from a look ended.
    pub(crate) fn ended(&self, done: &Done) {
        let Some(metrics) = &self.metrics else { return };
        let (controller, error) = outcome(done);
        if let Some(error) = error {
            let result = if error.class() == ErrorClass::Conflict { "conflict" } else { "failed" };
            metrics.write_failed(controller, result);
        }
    }

    /// The term is over: its successor counts.
    pub(crate) fn end(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.forget_cluster();
        }
    }
}

/// Whose write it was, and why it did not happen.
fn outcome(done: &Done) -> (&'static str, Option<&StoreError>) {
    match done {
        Done::Prepared(_, _, prepared) => ("job", prepared.error.as_ref()),
        Done::Applied(_, _, written) => ("job", written.failed.first().map(|(_, error)| error)),
        Done::JobStatus(_, result) => ("job-status", failed(result)),
        Done::VersionFetched(_, _, result) => ("job-status", failed(result)),
        Done::NodeStatus(_, result) | Done::NodeSpec(_, result) => ("node", failed(result)),
        Done::VolumeStatus(_, result) => ("volume", failed(result)),
        Done::VolumeSpec(_, result) => ("volume", failed(result)),
        Done::HostVolume(_, result) => ("host-volume", failed(result)),
        Done::AttachmentMade(_, _, result) => ("volume", failed(result)),
        Done::AttachmentDeleted(_, _, result) => ("volume", failed(result)),
        Done::DeploymentStatus(_, _, done) => ("deployment", failed(&done.0).or_else(|| done.1.error())),
        Done::DeploymentActed(_, acted) => ("deployment", acted.error()),
        Done::Launched(_, _, result) => ("periodic", failed(result)),
        Done::Settled(_, result) => ("allocation", failed(result)),
        Done::Marked(_, result) => ("allocation", failed(result)),
        Done::JobFreed(_, result) => ("job", failed(result)),
        Done::Ttl(result) => ("heartbeat", failed(result)),
        Done::Endpoints(_, _, result) => match result.as_ref() {
            Err(EndpointsError::Store(error)) => ("endpoints", Some(error)),
            Ok(_) | Err(EndpointsError::NameTaken(_)) => ("endpoints", None),
        },
        Done::Other(what, result) => (*what, failed(result)),
    }
}

fn failed<T>(result: &Result<T, StoreError>) -> Option<&StoreError> {
    result.as_ref().err()
}

const fn cause(notice: &StepNotice) -> &'static str {
    match notice {
        StepNotice::CanariesHealthy => "canaries-healthy",
        StepNotice::Promoted(_) => "promoted",
        StepNotice::Paused => "paused",
        StepNotice::Resumed => "resumed",
        StepNotice::AllocationUnhealthy(_) => "allocation-unhealthy",
        StepNotice::Failed(..) => "failed",
        StepNotice::Refused(_) => "refused",
    }
}

/// Counts an object where it is now, and no longer where it was.
fn moved<K>(seen: &Observed<K>, count: impl Fn(&K, i64)) {
    match seen {
        Observed::Now(now, before) => {
            if let Some(before) = before {
                count(before, -1);
            }
            count(now, 1);
        }
        Observed::Gone(last) => count(last, -1),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drover_api::client_node::NodePhase;
    use drover_api::{ClientNodeSpec, ClientNodeStatus, JobSpec};
    use drover_core::ids::NodeName;

    use super::*;

    #[test]
    fn jobs_are_named_only_where_that_is_asked_for() {
        let mut job = Job::new("web", JobSpec::default());
        job.metadata.namespace = Some("shop".to_owned());
        let job = Arc::new(job);
        let named = |per_job: bool| {
            let metrics = Metrics::default();
            let recorder = Recorder::of(Some(metrics.clone()), per_job);
            recorder.job(&Observed::Now(Arc::clone(&job), None));
            recorder.job(&Observed::Now(Arc::clone(&job), Some(Arc::clone(&job))));
            let there = metrics.n_jobs();
            recorder.job(&Observed::Gone(Arc::clone(&job)));
            (there, metrics.n_jobs())
        };
        assert_eq!((named(true), named(false)), ((1, 0), (0, 0)));
    }

    #[test]
    fn a_failed_write_counts_for_whose_it_was_and_a_lost_race_is_no_failure() {
        let node = || NodeName::from("n-1".to_owned());
        let lost = Done::NodeSpec(node(), Box::new(Err(StoreError::Conflict("changed".to_owned()))));
        let (controller, error) = outcome(&lost);
        assert_eq!((controller, error.map(StoreError::class)), ("node", Some(ErrorClass::Conflict)));
        let metrics = Metrics::default();
        let recorder = Recorder::of(Some(metrics.clone()), false);
        let refused = Done::NodeSpec(node(), Box::new(Err(StoreError::Forbidden("no".to_owned()))));
        let fine = Done::Other("event", Ok(()));
        for done in [lost, refused, fine] {
            recorder.ended(&done);
        }
        let counted = |result| metrics.n_reconciles("node", result);
        assert_eq!((counted("conflict"), counted("failed")), (1, 1));
    }

    #[test]
    fn an_object_is_counted_once_wherever_it_moves_and_not_when_it_is_gone() {
        let metrics = Metrics::default();
        let recorder = Recorder::of(Some(metrics.clone()), false);
        let node = |phase| {
            let mut node = ClientNode::new("n-1", ClientNodeSpec { node_pool: "gpu".into(), ..Default::default() });
            node.status = Some(ClientNodeStatus { phase, ..Default::default() });
            Arc::new(node)
        };
        let (ready, down) = (node(NodePhase::Ready), node(NodePhase::Down));
        let counted = || (metrics.n_nodes("gpu", "ready"), metrics.n_nodes("gpu", "down"));
        recorder.node(&Observed::Now(Arc::clone(&ready), None));
        assert_eq!(counted(), (1, 0));
        recorder.node(&Observed::Now(Arc::clone(&down), Some(ready)));
        assert_eq!(counted(), (0, 1));
        recorder.node(&Observed::Gone(down));
        assert_eq!(counted(), (0, 0));
    }
}
