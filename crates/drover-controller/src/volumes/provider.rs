//! What is asked of a volume's provider for the volume itself: to make it, to confirm it, to make it larger, to take
//! snapshots of it, to delete it. Of each volume one such call is under way at a time; what changes anything waits for
//! its turn among the others of the plugin.

use std::sync::Arc;

use drover_api::client_node::{CsiAnswer, CsiCall, NodePhase};
use drover_api::csi_volume::VolumeSnapshot;
use drover_api::{CSIVolume, annotation};
use drover_core::ids::ObjectKey;
use drover_core::volume::current::Provided;
use drover_core::volume::expand::{Expand, Expanded, expanded};
use drover_core::volume::plugin::{Plugin, Skipped};
use drover_core::volume::plugin_lock::Caller;
use drover_core::volume::provision::{is_to_be_made, is_to_be_validated, is_to_grow, may_delete_data};
use drover_core::volume::register::violations;
use drover_core::volume::release::external_id;
use drover_core::volume::snapshot::{SnapshotOutcome, SnapshotRequest};

use super::request::{Asked, ProviderCall, RequestSubject};
use super::state::{Following, Volumes};
use crate::shared::Shared;

/// What is to be asked of a provider next.
#[derive(Clone, Debug)]
struct Wanted {
    call: CsiCall,
    expand: Option<Expand>,
    request: Option<SnapshotRequest>,
}

impl From<CsiCall> for Wanted {
    fn from(call: CsiCall) -> Self {
        Self { call, expand: None, request: None }
    }
}

impl Volumes {
    /// Has a volume's provider asked, if there is something to ask for; otherwise what was under way ends.
    pub(super) fn look_at_provider(&mut self, shared: &mut Shared, id: &ObjectKey) {
        let Some(object) = Self::stored_volume(shared, id) else { return };
        let caller = (id.clone(), String::new());
        if self.wanted_of_provider(id, &object).is_some() {
            self.work.entry(caller.clone()).or_default();
        }
        self.advance_claim(shared, &caller);
    }

    fn wanted_of_provider(&self, id: &ObjectKey, object: &CSIVolume) -> Option<Wanted> {
        let status = object.status.clone().unwrap_or_default();
        let plugin = self.plugins.get(&object.spec.plugin_id);
        if object.metadata.deletion_timestamp.is_some() {
            let request = object.metadata.annotations.as_ref().and_then(|all| all.get(annotation::DELETE_DATA));
            let is_wanted = request.is_some_and(|request| request == "true") && status.claims.is_empty();
            return (is_wanted && !self.providers.deleted.contains(id)).then_some(CsiCall::DeleteVolume.into());
        }
        // Neither of a volume that another one stands for, nor of one that breaks rules, a provider is told.
        if self.before(id, object).is_some() || !violations(id, &object.spec).is_empty() {
            return None;
        }
        // What was answered last is not stored yet.
        if self.providers.provided.contains_key(id) {
            return None;
        }
        // Somebody waits for it, and it does not wait for the volume to come into order.
        let request = SnapshotRequest::of(object.metadata.annotations.as_ref());
        if let Some(request) =
            request.filter(|request| self.providers.snapshots.get(id).is_none_or(|known| known.request != *request))
        {
            return Some(Wanted { request: Some(request.clone()), ..request.call().into() });
        }
        if is_to_be_made(&object.spec, &status, plugin) {
            // That it is drover's own is stored first: from then on drover may delete it.
            return status.created_by_drover.then_some(CsiCall::CreateVolume.into());
        }
        let generation = object.metadata.generation.unwrap_or(0);
        if is_to_be_validated(&object.spec, &status, generation, plugin) {
            return Some(CsiCall::ValidateVolume.into());
        }
        let expand = is_to_grow(&object.spec, &status, plugin)?;
        Some(Wanted { expand: Some(expand), ..CsiCall::ControllerExpand.into() })
    }

    pub(super) fn take_provider_step(&mut self, shared: &mut Shared, caller: &Caller, object: &Arc<CSIVolume>) {
        if self.follow(shared, caller, object) {
            return;
        }
        let Some(wanted) = self.wanted_of_provider(&caller.0, object) else { return self.end_work(shared, caller) };
        let plugin = object.spec.plugin_id.clone();
        if let Some(request) = &wanted.request {
            let status = object.status.clone().unwrap_or_default();
            if let Err(why) = request.check(&object.spec, &status, self.plugins.get(&plugin)) {
                return self.conclude(shared, caller, request, Err(why));
            }
        } else if self.plugins.get(&plugin).is_some_and(Plugin::is_of_cluster) {
            // Of such a plugin nothing else is requested for.
            let why = format!(
                "plugin {plugin} is a driver of the cluster, by which drover deletes nothing; delete the data at the provider, or with the PersistentVolume that it belongs to, and take the annotation {} away",
                annotation::DELETE_DATA
            );
            return self.note_provider_error(shared, caller, &why);
        } else if wanted.call == CsiCall::DeleteVolume
            && let Err(why) = may_delete_data(&object.spec, &object.status.clone().unwrap_or_default())
        {
            let why = format!(
                "its data are not deleted: {why}; delete them at the provider, and take the annotation {} away, which lets the object go (the role drover-volume-admin may)",
                annotation::DELETE_DATA
            );
            return self.note_provider_error(shared, caller, &why);
        }
        let tried = self.work.get(caller).map(|work| work.tried.clone()).unwrap_or_default();
        let known = self.plugins.get(&plugin);
        let found = known.map_or_else(|| Err(Vec::new()), |known| known.controller(&shared.view, &tried));
        match found {
            Ok(controller) => {
                let status = object.status.clone().unwrap_or_default();
                // What has no id yet is named by its object.
                let is_new = wanted.call == CsiCall::CreateVolume;
                let external_id =
                    if is_new { String::new() } else { external_id(&caller.0, &object.spec, &status).to_owned() };
                let generation = object.metadata.generation.unwrap_or(0);
                let Wanted { call, expand, request } = wanted;
                let asked = ProviderCall { call, controller, plugin, external_id, expand, request, generation };
                self.ask(shared, caller, RequestSubject { volume: object, claim: None }, Asked::Provider(asked));
            }
            Err(skipped) => {
                let reasons: Vec<String> = skipped.iter().map(ToString::to_string).collect();
                let reasons = if reasons.is_empty() { "none is known".to_owned() } else { reasons.join(", ") };
                let why = format!("no controller of plugin {plugin} can be asked ({reasons})");
                match &wanted.request {
                    Some(request) => self.conclude(shared, caller, request, Err(why)),
                    None => self.note_provider_error(shared, caller, &why),
                }
            }
        }
    }

    /// Has the next mount follow; false where none has to. Where a node is down the volume is mounted again before
    /// anybody uses it there.
    fn follow(&mut self, shared: &mut Shared, caller: &Caller, object: &Arc<CSIVolume>) -> bool {
        let Some(following) = self.work.get_mut(caller).and_then(|work| work.following.as_mut()) else {
            return false;
        };
        let claims = object.status.as_ref().map(|status| &status.claims[..]).unwrap_or_default();
        let view = &shared.view;
        let next = loop {
            let Some(mount) = following.mounts.front() else { break None };
            let is_up = view.node(&mount.node).is_some_and(|node| node.phase != NodePhase::Down);
            match claims.iter().find(|claim| claim.alloc_id == mount.alloc_id).filter(|_| is_up) {
                Some(claim) => break Some((mount.node.clone(), claim)),
                None => drop(following.mounts.pop_front()),
            }
        };
        let expand = Some(following.expand);
        let Some((controller, claim)) = next else {
            let following = self.work.get_mut(caller).and_then(|work| work.following.take());
            if let Some(following) = following {
                self.providers.provided.insert(caller.0.clone(), following.provided);
                shared.due.volumes.insert(caller.0.clone());
            }
            return false;
        };
        let status = object.status.clone().unwrap_or_default();
        let (call, plugin) = (CsiCall::NodeExpand, object.spec.plugin_id.clone());
        let external_id = external_id(&caller.0, &object.spec, &status).to_owned();
        let asked = ProviderCall { call, controller, plugin, external_id, expand, request: None, generation: 0 };
        self.ask(shared, caller, RequestSubject { volume: object, claim: Some(claim) }, Asked::Provider(asked));
        true
    }

    /// Takes in what a provider has answered.
    pub(super) fn take_provided(
        &mut self,
        shared: &mut Shared,
        caller: &Caller,
        asked: &ProviderCall,
        answer: &CsiAnswer,
    ) {
        if !answer.error.is_empty() {
            // Of a mount there is nobody else to ask.
            if answer.retryable && asked.call != CsiCall::NodeExpand {
                let reason = answer.error.clone();
                return self.try_next(caller, Skipped { node: asked.controller.clone(), reason });
            }
            return match &asked.request {
                Some(request) => self.conclude(shared, caller, request, Err(answer.error.clone())),
                None => self.note_provider_error(shared, caller, &answer.error),
            };
        }
        if let Some(request) = &asked.request {
            return self.conclude(shared, caller, request, Ok(answer.snapshots.clone()));
        }
        let id = caller.0.clone();
        self.providers.errors.remove(&id);
        if asked.call == CsiCall::NodeExpand {
            let following = self.work.get_mut(caller).and_then(|work| work.following.as_mut());
            drop(following.and_then(|following| following.mounts.pop_front()));
            return;
        }
        if asked.call == CsiCall::DeleteVolume {
            self.providers.deleted.insert(id.clone());
        } else {
            // What was made, or confirmed, was so as a whole.
            let is_whole = matches!(asked.call, CsiCall::CreateVolume | CsiCall::ValidateVolume);
            let provided = Provided {
                generation: if is_whole { asked.generation } else { 0 },
                external_id: answer.external_id.clone(),
                context: answer.context.clone(),
                capacity_bytes: answer.capacity_bytes,
                topologies: answer.topologies.clone(),
            };
            if let Some(following) = Self::following(shared, &id, asked, answer, &provided) {
                if let Some(work) = self.work.get_mut(caller) {
                    work.following = Some(following);
                }
                return;
            }
            self.providers.provided.insert(id.clone(), provided);
        }
        shared.due.volumes.insert(id);
    }

    /// The mounts that have to follow on a provider's answer, if there are any.
    fn following(
        shared: &Shared,
        id: &ObjectKey,
        asked: &ProviderCall,
        answer: &CsiAnswer,
        provided: &Provided,
    ) -> Option<Following> {
        let grown = Expanded { capacity_bytes: answer.capacity_bytes?, needs_nodes: answer.node_expansion_required };
        let object = Self::stored_volume(shared, id)?;
        let (_, mounts) = expanded(object.status.as_ref()?, grown, shared.clock.now());
        let expand = asked.expand.filter(|_| !mounts.is_empty())?;
        Some(Following { provided: provided.clone(), expand, mounts: mounts.into() })
    }

    /// A request about snapshots is fulfilled, or is not; the status says which, and then the request is taken away.
    fn conclude(
        &mut self,
        shared: &mut Shared,
        caller: &Caller,
        request: &SnapshotRequest,
        answer: Result<Vec<VolumeSnapshot>, String>,
    ) {
        let id = caller.0.clone();
        self.end_work(shared, caller);
        let object = Self::stored_volume(shared, &id);
        if object.and_then(|object| SnapshotRequest::of(object.metadata.annotations.as_ref())).as_ref() != Some(request)
        {
            return;
        }
        if let Err(why) = &answer {
            tracing::warn!(volume = %id, call = %request.call(), error = why, "a request about snapshots is not fulfilled");
            Self::report_volume(shared, &id, "SnapshotFailed", "Snapshot", why);
        }
        self.providers.snapshots.insert(id.clone(), SnapshotOutcome { request: request.clone(), answer });
        shared.due.volumes.insert(id);
    }

    /// Tells people why a provider has not done what is wanted, and tries again later.
    fn note_provider_error(&mut self, shared: &mut Shared, caller: &Caller, why: &str) {
        tracing::warn!(volume = %caller.0, error = why, "a provider has not done what is wanted");
        if let Some(work) = self.work.get_mut(caller) {
            work.n_failed += 1;
        }
        self.providers.errors.insert(caller.0.clone(), why.to_owned());
        shared.due.volumes.insert(caller.0.clone());
        Self::report_volume(shared, &caller.0, "ProviderFailed", "Provide", why);
        self.pause(caller);
    }
}
