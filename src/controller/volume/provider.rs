//! What is asked of a volume's provider for the volume itself: to make it, to confirm it, to make it larger, to delete it. Of each
//! volume one such call is under way at a time; what changes anything waits for its turn among the others of the plugin.

use std::sync::Arc;

use drover_api::client_node::{CsiAnswer, CsiCall};
use drover_api::{CSIVolume, annotation};
use drover_core::ids::{NodeName, ObjectKey};
use drover_core::volume::current::{Provided, is_to_be_made, is_to_be_validated, is_to_grow};
use drover_core::volume::expand::Expand;
use drover_core::volume::plugin::Skipped;
use drover_core::volume::release::external_id;
use drover_core::volume::turn::Caller;

use super::call::Asked;
use crate::controller::term::Term;
use crate::store::Store;

/// A call for a volume itself.
#[derive(Clone, Debug)]
pub(super) struct ProviderCall {
    pub(super) call: CsiCall,
    /// The node whose controller is asked.
    pub(super) controller: NodeName,
    pub(super) plugin: String,
    /// The provider's id of the volume, once it has one.
    pub(super) external_id: String,
    /// How large it is to become.
    pub(super) expand: Option<Expand>,
    /// The generation of the spec that it is about.
    pub(super) generation: i64,
}

impl<S: Store> Term<S> {
    /// Has a volume's provider asked, if there is something to ask for.
    pub(super) fn look_at_provider(&mut self, id: &ObjectKey) {
        let Some(object) = self.stored_volume(id) else { return };
        if self.provider_wish(id, &object).is_some() {
            let caller = (id.clone(), String::new());
            self.claims.work.entry(caller.clone()).or_default();
            self.advance_claim(&caller);
        }
    }

    fn provider_wish(&self, id: &ObjectKey, object: &CSIVolume) -> Option<(CsiCall, Option<Expand>)> {
        let status = object.status.clone().unwrap_or_default();
        let plugin = self.claims.plugins.get(&object.spec.plugin_id);
        if object.metadata.deletion_timestamp.is_some() {
            let wish = object.metadata.annotations.as_ref().and_then(|all| all.get(annotation::DELETE_DATA));
            let is_wanted = wish.is_some_and(|wish| wish == "true") && status.claims.is_empty();
            return (is_wanted && !self.claims.deleted.contains(id)).then_some((CsiCall::DeleteVolume, None));
        }
        // What was answered last is not stored yet.
        if self.claims.provided.contains_key(id) {
            return None;
        }
        if is_to_be_made(&object.spec, &status, plugin) {
            return Some((CsiCall::CreateVolume, None));
        }
        let generation = object.metadata.generation.unwrap_or(0);
        if is_to_be_validated(&object.spec, &status, generation, plugin) {
            return Some((CsiCall::ValidateVolume, None));
        }
        let expand = is_to_grow(&object.spec, &status, plugin)?;
        Some((CsiCall::ControllerExpand, Some(expand)))
    }

    pub(super) fn take_provider_step(&mut self, caller: &Caller, object: &Arc<CSIVolume>) {
        let Some((call, expand)) = self.provider_wish(&caller.0, object) else { return self.end_work(caller) };
        let plugin = object.spec.plugin_id.clone();
        let tried = self.claims.work.get(caller).map(|work| work.tried.clone()).unwrap_or_default();
        let known = self.claims.plugins.get(&plugin);
        let found = known.map_or_else(|| Err(Vec::new()), |known| known.controller(&self.view, &tried));
        match found {
            Ok(controller) => {
                let status = object.status.clone().unwrap_or_default();
                // What has no id yet is named by its object.
                let is_new = call == CsiCall::CreateVolume;
                let external_id =
                    if is_new { String::new() } else { external_id(&caller.0, &object.spec, &status).to_owned() };
                let generation = object.metadata.generation.unwrap_or(0);
                let asked = ProviderCall { call, controller, plugin, external_id, expand, generation };
                self.ask(caller, object, None, Asked::Provider(asked));
            }
            Err(skipped) => {
                let reasons: Vec<String> = skipped.iter().map(ToString::to_string).collect();
                let reasons = if reasons.is_empty() { "none is known".to_owned() } else { reasons.join(", ") };
                self.note_provider_error(caller, &format!("no controller of plugin {plugin} can be asked ({reasons})"));
            }
        }
    }

    /// Takes in what a provider has answered.
    pub(super) fn take_provided(&mut self, caller: &Caller, asked: &ProviderCall, answer: &CsiAnswer) {
        if !answer.error.is_empty() {
            if answer.retryable {
                let reason = answer.error.clone();
                return self.try_next(caller, Skipped { node: asked.controller.clone(), reason });
            }
            return self.note_provider_error(caller, &answer.error);
        }
        let id = caller.0.clone();
        self.claims.provider_errors.remove(&id);
        if asked.call == CsiCall::DeleteVolume {
            self.claims.deleted.insert(id.clone());
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
            self.claims.provided.insert(id.clone(), provided);
        }
        self.claims.dirty.insert(id);
    }

    /// Tells people why a provider has not done what is wanted, and tries again later.
    fn note_provider_error(&mut self, caller: &Caller, why: &str) {
        tracing::warn!(volume = %caller.0, error = why, "a provider has not done what is wanted");
        if let Some(work) = self.claims.work.get_mut(caller) {
            work.n_failed += 1;
        }
        self.claims.provider_errors.insert(caller.0.clone(), why.to_owned());
        self.claims.dirty.insert(caller.0.clone());
        self.report_volume(&caller.0, "ProviderFailed", "Provide", why);
        self.pause(caller);
    }
}
