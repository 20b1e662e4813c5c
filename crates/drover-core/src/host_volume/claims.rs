//! Which slots have a HostVolume as their own: those of groups with `sticky` that used it. A claim outlives the
//! allocation; it ends with the job, with the group's `sticky`, and with the volume.

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_api::group::Group;
use drover_api::host_volume::HostVolumeClaim;
use drover_api::volume_request::VolumeRequest;

use super::known::KnownVolume;
use super::request::users;
use crate::ids::ObjectKey;
use crate::model::Job;
use crate::snapshot::ClusterView;
use crate::volume::access::is_csi;

/// Most slots that a volume's object names.
const MOST: usize = 4096;

/// The claim of a slot.
pub fn claim(job: &Job, group: &str, index: i64) -> HostVolumeClaim {
    let (job_name, job_uid) = (job.key.name.to_string(), job.uid.to_string());
    HostVolumeClaim { job_name, job_uid, group: group.to_owned(), index }
}

/// The slots that have a volume as their own now. O(claims, and allocations on its node).
pub(super) fn claims(view: &ClusterView, volume: &KnownVolume) -> BTreeSet<HostVolumeClaim> {
    let namespace = &volume.key.namespace;
    let job = |name: &str| view.job(&ObjectKey::new(Arc::clone(namespace), name));
    let lasting = volume.claims.iter().filter(|one| {
        job(&one.job_name).is_some_and(|job| *job.uid.as_str() == *one.job_uid && binds(job, &one.group, volume))
    });
    let users = users(view, volume).filter_map(|alloc| {
        let job = view.job(&alloc.job).filter(|job| job.uid == alloc.job_uid)?;
        binds(job, &alloc.group, volume).then(|| claim(job, &alloc.group, alloc.index))
    });
    let all: BTreeSet<HostVolumeClaim> = lasting.cloned().chain(users).collect();
    all.into_iter().take(MOST).collect()
}

/// The host volumes that slots of a group keep.
pub fn sticky(group: &Group) -> impl Iterator<Item = &VolumeRequest> {
    group.volumes.iter().filter(|request| request.sticky && !is_csi(request))
}

/// Whether slots of a job's group keep the volume.
fn binds(job: &Job, group: &str, volume: &KnownVolume) -> bool {
    let group = job.definition.spec.group(group);
    group.is_some_and(|group| sticky(group).any(|request| *request.source == *volume.name))
}
