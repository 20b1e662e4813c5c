//! Dispatches: a job without groups runs those of its parent, as they were when the leader first saw it.
//!
//! What is wrong with a dispatch is `drover_core::dispatch`'s decision. The whole spec is recorded as the dispatch's
//! version 0, and from then on that version counts, whatever becomes of the parent.

use std::sync::Arc;

use drover_api::job::EvalTrigger;
use drover_api::{Job, JobSpec, JobVersion};
use drover_core::dispatch::{self, Parent};
use drover_core::ids::JobKey;
use drover_core::validate::Violation;

use drover_store::convert;
use drover_store::events::{Happening, Severity};

use super::Jobs;
use super::children::Member;
use crate::keys::key_of;
use crate::shared::Shared;

impl Jobs {
    /// A job with its whole spec, and what is wrong with it as a dispatch. Every other job is whole already.
    pub(super) fn whole(
        shared: &Shared,
        key: &JobKey,
        object: &Arc<Job>,
        versions: &[Arc<JobVersion>],
    ) -> (Arc<Job>, Vec<Violation>) {
        if !dispatch::is_open(&object.spec) {
            return (Arc::clone(object), Vec::new());
        }
        if let Some(version) = versions.last() {
            let (stop, scale) = (object.spec.stop, object.spec.scale.clone());
            return (with_spec(object, JobSpec { stop, scale, ..version.spec.job.clone() }), Vec::new());
        }
        let name = object.spec.dispatch.as_ref().map(|of| of.parent.clone()).unwrap_or_default();
        let parent = shared.caches.jobs.get(&key_of(&JobKey::new(&*key.namespace, name.as_str())));
        let is_stopped = parent.is_some_and(|parent| parent.spec.stop || parent.metadata.deletion_timestamp.is_some());
        let found = Parent { name: &name, spec: parent.map(|parent| &parent.spec), is_stopped };
        let mut violations = dispatch::violations(found, &object.spec);
        violations.extend(Self::token_in_use(shared, key, &JobKey::new(&*key.namespace, name.as_str()), object));
        match parent {
            Some(parent) if violations.is_empty() => {
                (with_spec(object, dispatch::whole(&parent.spec, &object.spec, &key.name)), violations)
            }
            Some(_) | None => (Arc::clone(object), violations),
        }
    }

    /// Of several dispatches with one token only one runs: the one that does already, else the oldest.
    fn token_in_use(shared: &Shared, key: &JobKey, parent: &JobKey, object: &Job) -> Option<Violation> {
        let token = &object.spec.dispatch.as_ref()?.idempotency_token;
        let uid = shared.job(parent).map(|parent| convert::uid(&parent.metadata))?;
        if token.is_empty() {
            return None;
        }
        let own = (convert::created_at(&object.metadata), key);
        let is_before = |other: &JobKey, member: &Member| {
            let runs = shared.job(other).is_some_and(|other_object| {
                !shared.versions_of(other, convert::uid(&other_object.metadata).as_str()).is_empty()
            });
            runs || shared.evaluations.broker.is_under_way(other) || (member.created_at, other) < own
        };
        let (holder, _) = shared
            .caches
            .children
            .children(parent, &uid)
            .find(|(other, member)| *other != key && member.token == *token && is_before(other, member))?;
        Some(Violation {
            code: "TokenUsed",
            field: "spec.dispatch.idempotencyToken".to_owned(),
            message: format!("is that of djob/{}, which runs for it; delete this job", holder.name),
        })
    }

    /// A job that can be dispatched is new or different: dispatches that waited for it may be right now.
    pub(super) fn look_at_dispatches(shared: &mut Shared, parent: &JobKey) {
        let Some(object) = shared.job(parent).cloned() else { return };
        let uid = convert::uid(&object.metadata);
        let waiting: Vec<JobKey> = shared
            .caches
            .children
            .children(parent, &uid)
            .filter(|(key, member)| member.is_open && Self::has_no_version(shared, key))
            .map(|(key, _)| key.clone())
            .collect();
        for child in waiting {
            shared.enqueue(&child, EvalTrigger::JobRegister);
        }
    }

    fn has_no_version(shared: &Shared, key: &JobKey) -> bool {
        let object = shared.job(key);
        object.is_some_and(|object| shared.versions_of(key, convert::uid(&object.metadata).as_str()).is_empty())
    }

    /// Tells of a dispatch at its parent.
    pub(super) fn report_dispatch(shared: &mut Shared, child: &JobKey) {
        let Some(object) = shared.job(child).filter(|job| job.spec.dispatch.is_some()) else {
            return;
        };
        let occasion = convert::uid(&object.metadata).to_string();
        let parent = shared.caches.children.parent(child).and_then(|parent| shared.job(parent)).cloned();
        let Some(parent) = parent else { return };
        let note = format!("dispatched as djob/{}", child.name);
        let happening = Happening {
            severity: Severity::Normal,
            reason: "Dispatched",
            action: "Dispatch",
            note,
            occasion: &occasion,
        };
        shared.report(&*parent, &happening);
    }
}

fn with_spec(object: &Job, spec: JobSpec) -> Arc<Job> {
    Arc::new(Job { metadata: object.metadata.clone(), spec, status: object.status.clone() })
}
