//! Every kind that the API shows, and how its objects refer to each other.

use std::sync::Arc;

use drover_api::{Allocation, CSIVolume, ClientNode, Deployment, HostVolume, Job, JobVersion};
use drover_core::deployment::newest;
use drover_core::evaluation_id;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::table::{Listed, Table};

/// What is known of a cluster.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// Jobs.
    pub jobs: Table<Job>,
    /// What jobs once were.
    pub versions: Table<JobVersion>,
    /// Allocations.
    pub allocations: Table<Allocation>,
    /// Deployments.
    pub deployments: Table<Deployment>,
    /// Nodes.
    pub nodes: Table<ClientNode>,
    /// Volumes.
    pub volumes: Table<CSIVolume>,
    /// Host volumes.
    pub host_volumes: Table<HostVolume>,
    /// Namespaces.
    pub namespaces: Table<Namespace>,
}

/// A kind of the world. Replicas of the gateway name it to each other as it is spelled here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// Jobs, and with them their evaluations.
    Job,
    /// Versions of jobs.
    Version,
    /// Allocations.
    Allocation,
    /// Deployments.
    Deployment,
    /// Nodes, and with them the plugins that they run.
    Node,
    /// Volumes.
    Volume,
    /// Host volumes.
    HostVolume,
    /// Namespaces.
    Namespace,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Job,
        Self::Version,
        Self::Allocation,
        Self::Deployment,
        Self::Node,
        Self::Volume,
        Self::HostVolume,
        Self::Namespace,
    ];
}

impl World {
    /// The highest resourceVersion that was seen of a kind.
    pub fn index(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Job => self.jobs.index(),
            Kind::Version => self.versions.index(),
            Kind::Allocation => self.allocations.index(),
            Kind::Deployment => self.deployments.index(),
            Kind::Node => self.nodes.index(),
            Kind::Volume => self.volumes.index(),
            Kind::HostVolume => self.host_volumes.index(),
            Kind::Namespace => self.namespaces.index(),
        }
    }

    /// How often a kind's state went back to an older one.
    pub fn n_steps_back(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Job => self.jobs.n_steps_back(),
            Kind::Version => self.versions.n_steps_back(),
            Kind::Allocation => self.allocations.n_steps_back(),
            Kind::Deployment => self.deployments.n_steps_back(),
            Kind::Node => self.nodes.n_steps_back(),
            Kind::Volume => self.volumes.n_steps_back(),
            Kind::HostVolume => self.host_volumes.n_steps_back(),
            Kind::Namespace => self.namespaces.n_steps_back(),
        }
    }

    /// Whether every kind's objects have come.
    pub fn is_complete(&self) -> bool {
        self.jobs.is_complete()
            && self.versions.is_complete()
            && self.allocations.is_complete()
            && self.deployments.is_complete()
            && self.nodes.is_complete()
            && self.volumes.is_complete()
            && self.host_volumes.is_complete()
            && self.namespaces.is_complete()
    }

    /// A job by the id that Nomad's clients know it by.
    pub(crate) fn job(&self, namespace: &str, id: &str) -> Option<&Arc<Job>> {
        self.jobs.of_group(job_group(namespace, id)).next()
    }

    /// The jobs of a namespace, there or just gone, whose evaluations' ids end with a tag: one, but by chance.
    pub(crate) fn jobs_of_tag<'a>(&'a self, namespace: &str, tag: &str) -> impl Iterator<Item = &'a Arc<Job>> {
        let of = (namespace.to_owned(), tag.to_owned());
        let departed = self.jobs.departed().filter(move |job| {
            self::namespace(&job.metadata) == of.0 && evaluation_id::tag(uid(Some(&job.metadata))) == of.1
        });
        self.jobs.of_group(tag_group(namespace, tag)).chain(departed)
    }

    /// The jobs that another one made, by that one's object's name.
    pub(crate) fn children_of(&self, namespace: &str, parent: &str) -> impl Iterator<Item = &Arc<Job>> {
        self.jobs.of_group(child_group(namespace, parent))
    }

    /// An allocation of a namespace by its id.
    pub(crate) fn allocation(&self, namespace: &str, id: &str) -> Option<&Arc<Allocation>> {
        self.allocations.with_uid(id).filter(|it| self::namespace(&it.metadata) == namespace)
    }

    /// A deployment of a namespace by its id.
    pub(crate) fn deployment(&self, namespace: &str, id: &str) -> Option<&Arc<Deployment>> {
        self.deployments.with_uid(id).filter(|it| self::namespace(&it.metadata) == namespace)
    }

    /// The allocations of a job by its object's name, of all its incarnations.
    pub(crate) fn allocations_of(&self, namespace: &str, job: &str) -> impl Iterator<Item = &Arc<Allocation>> {
        self.allocations.of_group(job_group(namespace, job))
    }

    /// The allocations on a node.
    pub(crate) fn allocations_on(&self, node: &str) -> impl Iterator<Item = &Arc<Allocation>> {
        self.allocations.of_group(node_group(node))
    }

    /// The allocations that count for a deployment.
    pub(crate) fn allocations_for(&self, namespace: &str, deployment: &str) -> impl Iterator<Item = &Arc<Allocation>> {
        self.allocations.of_group(deployment_group(namespace, deployment))
    }

    /// The allocation that replaces one.
    pub(crate) fn successor(&self, namespace: &str, allocation: &str) -> Option<&Arc<Allocation>> {
        self.allocations.of_group(successor_group(namespace, allocation)).next()
    }

    /// The versions of a job by its object's name, of all its incarnations.
    pub(crate) fn versions_of(&self, namespace: &str, job: &str) -> impl Iterator<Item = &Arc<JobVersion>> {
        self.versions.of_group(job_group(namespace, job))
    }

    /// The deployments of a job by its object's name, of all its incarnations.
    pub(crate) fn deployments_of(&self, namespace: &str, job: &str) -> impl Iterator<Item = &Arc<Deployment>> {
        self.deployments.of_group(job_group(namespace, job))
    }

    /// The allocations of this job, and of none before it of its name.
    pub(crate) fn own_allocations<'a>(&'a self, job: &'a Job) -> impl Iterator<Item = &'a Arc<Allocation>> {
        self.allocations_of(namespace(&job.metadata), name(job)).filter(|it| is_of(job, &it.spec.job_uid))
    }

    /// The versions of this job, and of none before it of its name.
    pub(crate) fn own_versions<'a>(&'a self, job: &'a Job) -> impl Iterator<Item = &'a Arc<JobVersion>> {
        self.versions_of(namespace(&job.metadata), name(job)).filter(|it| is_of(job, &it.spec.job_uid))
    }

    /// The newest deployment of this job, and of none before it of its name.
    pub(crate) fn newest_deployment(&self, job: &Job) -> Option<&Arc<Deployment>> {
        let all = self.deployments_of(namespace(&job.metadata), name(job));
        newest(all.filter(|it| is_of(job, &it.spec.job_uid)))
    }

    /// A volume by the id that Nomad's clients know it by.
    pub(crate) fn volume(&self, namespace: &str, id: &str) -> Option<&Arc<CSIVolume>> {
        self.volumes.of_group(volume_group(namespace, id)).next()
    }

    /// A host volume of a namespace by its id.
    pub(crate) fn host_volume(&self, namespace: &str, id: &str) -> Option<&Arc<HostVolume>> {
        self.host_volumes.with_uid(id).filter(|it| self::namespace(&it.metadata) == namespace)
    }

    /// The uid of a node; empty where there is none of this name.
    pub(crate) fn node_id(&self, name: &str) -> String {
        uid(self.nodes.named("", name).map(|node| &node.metadata)).to_owned()
    }
}

/// The uid of an object that may be there.
pub(crate) fn uid(meta: Option<&ObjectMeta>) -> &str {
    meta.and_then(|meta| meta.uid.as_deref()).unwrap_or_default()
}

/// Whether a uid is that of this job.
fn is_of(job: &Job, uid: &str) -> bool {
    job.metadata.uid.as_deref() == Some(uid)
}

/// The name of a job's object.
fn name(job: &Job) -> &str {
    job.metadata.name.as_deref().unwrap_or_default()
}

/// The namespace of an object.
pub(crate) fn namespace(meta: &ObjectMeta) -> &str {
    meta.namespace.as_deref().unwrap_or_default()
}

/// The id by which Nomad's clients know a job: `spec.id`, or its object's name.
pub(crate) fn job_id(job: &Job) -> &str {
    job.spec.id_or(job.metadata.name.as_deref().unwrap_or_default())
}

/// The id by which Nomad's clients know a volume: `spec.id`, or its object's name.
pub(crate) fn volume_id(volume: &CSIVolume) -> &str {
    volume.spec.id_or(volume.metadata.name.as_deref().unwrap_or_default())
}

// No name of a namespace or an object has a slash, so that none of these is another's.

fn job_group(namespace: &str, job: &str) -> String {
    format!("job/{namespace}/{job}")
}

fn tag_group(namespace: &str, tag: &str) -> String {
    format!("tag/{namespace}/{tag}")
}

fn child_group(namespace: &str, parent: &str) -> String {
    format!("child/{namespace}/{parent}")
}

fn volume_group(namespace: &str, volume: &str) -> String {
    format!("volume/{namespace}/{volume}")
}

fn node_group(node: &str) -> String {
    format!("node/{node}")
}

fn deployment_group(namespace: &str, deployment: &str) -> String {
    format!("deployment/{namespace}/{deployment}")
}

fn successor_group(namespace: &str, allocation: &str) -> String {
    format!("after/{namespace}/{allocation}")
}

impl Listed for Job {
    /// Clients look for the evaluation of a deletion when it has been made.
    const DEPARTED: usize = 256;

    /// Under the id of Nomad's clients, under the tag of its evaluations, and under the job that made it.
    fn groups(&self) -> Vec<String> {
        let namespace = namespace(&self.metadata);
        let tag = evaluation_id::tag(uid(Some(&self.metadata)));
        let own = [job_group(namespace, job_id(self)), tag_group(namespace, &tag)];
        let parent = self.spec.dispatch.as_ref().map(|dispatch| child_group(namespace, &dispatch.parent));
        own.into_iter().chain(parent).collect()
    }
}

impl Listed for JobVersion {
    fn groups(&self) -> Vec<String> {
        vec![job_group(namespace(&self.metadata), &self.spec.job_name)]
    }
}

impl Listed for Allocation {
    fn groups(&self) -> Vec<String> {
        let (namespace, spec) = (namespace(&self.metadata), &self.spec);
        let mut groups = vec![job_group(namespace, &spec.job_name), node_group(&spec.node_name)];
        if !spec.deployment_name.is_empty() {
            groups.push(deployment_group(namespace, &spec.deployment_name));
        }
        if !spec.previous_allocation.is_empty() {
            groups.push(successor_group(namespace, &spec.previous_allocation));
        }
        groups
    }
}

impl Listed for Deployment {
    fn groups(&self) -> Vec<String> {
        vec![job_group(namespace(&self.metadata), &self.spec.job_name)]
    }
}

impl Listed for ClientNode {
    fn groups(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Listed for CSIVolume {
    fn groups(&self) -> Vec<String> {
        vec![volume_group(namespace(&self.metadata), volume_id(self))]
    }
}

impl Listed for HostVolume {
    fn groups(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Listed for Namespace {
    fn groups(&self) -> Vec<String> {
        Vec::new()
    }
}
