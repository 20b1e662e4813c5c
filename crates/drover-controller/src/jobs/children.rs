//! Which jobs were made from which: the launches of periodic jobs and the dispatches of parameterized ones.
//!
//! An index of what the watch showed. Decides nothing.

use std::collections::{BTreeMap, HashMap};

use drover_api::Job;
use drover_api::job::{ChildrenSummary, JobPhase};
use drover_core::ids::{JobKey, Uid};
use drover_core::{dispatch, periodic};
use jiff::Timestamp;

use drover_store::convert;

/// A job that was made from another one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member {
    /// Where it stands.
    pub(crate) phase: JobPhase,
    /// The incarnation of its parent that owns it, where one does.
    owner: Option<Uid>,
    /// The launch that it is.
    pub(crate) launch: Option<Timestamp>,
    /// The token of its dispatch.
    pub(crate) token: String,
    /// Whether it takes its groups from its parent.
    pub(crate) is_open: bool,
    /// When it was made.
    pub(crate) created_at: Timestamp,
}

/// The children of each job.
#[derive(Debug, Default)]
pub(crate) struct ChildJobs {
    members: HashMap<JobKey, BTreeMap<JobKey, Member>>,
    parents: HashMap<JobKey, JobKey>,
}

impl ChildJobs {
    /// Takes a job in. Its parent, when something about the child is different now.
    pub(crate) fn observe(&mut self, job: &Job) -> Option<JobKey> {
        let (parent, owner) = parent_of(job)?;
        let key = convert::object_key(&job.metadata);
        let status = job.status.as_ref().filter(|status| status.observed_generation >= 0);
        let member = Member {
            phase: status.map_or(JobPhase::Pending, |status| status.phase),
            owner,
            launch: periodic::launch_of(&job.spec.id),
            token: job.spec.dispatch.as_ref().map(|of| of.idempotency_token.clone()).unwrap_or_default(),
            is_open: dispatch::is_open(&job.spec),
            created_at: convert::created_at(&job.metadata),
        };
        self.parents.insert(key.clone(), parent.clone());
        let before = self.members.entry(parent.clone()).or_default().insert(key, member.clone());
        (before.as_ref() != Some(&member)).then_some(parent)
    }

    /// A job is gone. Its parent, if it had one.
    pub(crate) fn forget(&mut self, job: &JobKey) -> Option<JobKey> {
        let parent = self.parents.remove(job)?;
        if let Some(members) = self.members.get_mut(&parent) {
            members.remove(job);
            if members.is_empty() {
                self.members.remove(&parent);
            }
        }
        Some(parent)
    }

    /// The parent of a job.
    pub(crate) fn parent(&self, job: &JobKey) -> Option<&JobKey> {
        self.parents.get(job)
    }

    /// The children of an incarnation of a job.
    pub(crate) fn children<'a>(
        &'a self,
        parent: &JobKey,
        uid: &'a Uid,
    ) -> impl Iterator<Item = (&'a JobKey, &'a Member)> {
        let all = self.members.get(parent).into_iter().flatten();
        all.filter(move |(_, member)| member.owner.as_ref().is_none_or(|owner| owner == uid))
    }

    /// How many children of an incarnation of a job there are. O(children).
    pub(crate) fn summary(&self, parent: &JobKey, uid: &Uid) -> ChildrenSummary {
        let mut summary = ChildrenSummary::default();
        for (_, member) in self.children(parent, uid) {
            let count = match member.phase {
                JobPhase::Pending => &mut summary.pending,
                JobPhase::Running => &mut summary.running,
                JobPhase::Dead => &mut summary.dead,
            };
            *count += 1;
        }
        summary
    }
}

/// The job that a job was made from: its owner, else the one that its dispatch names.
fn parent_of(job: &Job) -> Option<(JobKey, Option<Uid>)> {
    let namespace = job.metadata.namespace.clone().unwrap_or_default();
    let owners = job.metadata.owner_references.iter().flatten();
    let owner = owners.into_iter().find(|one| one.kind == "Job" && one.api_version == drover_api::API_VERSION);
    match (owner, &job.spec.dispatch) {
        (Some(owner), _) => Some((JobKey::new(namespace, owner.name.clone()), Some(Uid::from(owner.uid.clone())))),
        (None, Some(dispatch)) => Some((JobKey::new(namespace, dispatch.parent.clone()), None)),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn child(name: &str, owner: Option<&str>, phase: &str) -> Job {
        let owners =
            owner.map(|uid| json!([{ "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "name": "p", "uid": uid }]));
        serde_json::from_value(json!({
            "apiVersion": "drover.dev/v1alpha1", "kind": "Job",
            "metadata": { "name": name, "namespace": "ns", "ownerReferences": owners },
            "spec": { "type": "batch", "dispatch": { "parent": "p" } },
            "status": { "observedGeneration": 1, "phase": phase },
        }))
        .unwrap()
    }

    #[test]
    fn children_are_counted_by_phase_and_those_of_an_earlier_incarnation_are_not() {
        let (mut children, parent) = (ChildJobs::default(), JobKey::new("ns", "p"));
        assert_eq!(children.observe(&child("a", Some("1"), "running")), Some(parent.clone()));
        assert_eq!(children.observe(&child("a", Some("1"), "running")), None, "nothing is new");
        children.observe(&child("b", None, "dead"));
        children.observe(&child("c", Some("0"), "running"));
        let count = |children: &ChildJobs| children.summary(&parent, &Uid::from("1"));
        assert_eq!(count(&children), ChildrenSummary { pending: 0, running: 1, dead: 1 });
        assert_eq!(children.observe(&child("a", Some("1"), "dead")), Some(parent.clone()));
        assert_eq!(children.forget(&JobKey::new("ns", "b")), Some(parent.clone()));
        assert_eq!(count(&children), ChildrenSummary { pending: 0, running: 0, dead: 1 });
    }
}
