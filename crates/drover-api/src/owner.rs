//! What belongs to a job: the reference that says so, and jobs that another one makes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;

use crate::job::{Job, JobSpec};
use crate::{group_version, label};

/// The reference that makes a job the owner of what is created for it.
pub fn owner(job: &Job) -> OwnerReference {
    OwnerReference {
        api_version: group_version::API_VERSION.to_owned(),
        kind: "Job".to_owned(),
        name: job.metadata.name.clone().unwrap_or_default(),
        uid: job.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(false),
    }
}

/// A job that belongs to another one, as its launch or dispatch. `name` is the object's.
pub fn child(parent: &Job, name: &str, spec: JobSpec) -> Job {
    let parent_name = parent.metadata.name.clone().unwrap_or_default();
    let mut job = Job::new(name, spec);
    job.metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: parent.metadata.namespace.clone(),
        labels: Some([(label::PARENT.to_owned(), parent_name)].into()),
        owner_references: Some(vec![owner(parent)]),
        ..ObjectMeta::default()
    };
    job
}
