//! What agents are asked for on behalf of volumes, and what they answer.
//!
//! A request stands in the status of the asked agent's ClientNode until it is answered in that node's fingerprint. Its
//! name is used once, so that an answer belongs to one request. Of each plugin one controller call is under way at a
//! time.

use std::sync::Arc;

use drover_api::ClientNode;
use drover_api::client_node::{CsiAnswer, CsiCall, CsiRequest, NodePhase};
use drover_api::csi_volume::{AttachState, ClaimState};
use drover_core::ids::NodeName;
use drover_core::volume::claim::Attachment;
use drover_core::volume::plugin::Skipped;
use drover_core::volume::plugin_lock::Caller;
use drover_core::volume::release::{Answered, ControllerAnswer, ControllerCall, NodeAnswer};

use super::request::{Asked, Call, ProviderCall, RequestSubject};
use super::sealing::sealing_key;
use super::state::Volumes;
use crate::shared::Shared;

/// Requests that stand in one ClientNode at most; others wait.
const MOST_REQUESTS: usize = 128;

impl Volumes {
    /// Asks an agent on behalf of a claim, or waits for the turn.
    pub(super) fn ask(&mut self, shared: &mut Shared, caller: &Caller, about: RequestSubject<'_>, asked: Asked) {
        let RequestSubject { volume, claim } = about;
        if asked.call().takes_lock() {
            if let Some(work) = self.work.get_mut(caller) {
                work.turn = Some(asked.plugin().to_owned());
            }
            if !self.calls.lock.ask(asked.plugin(), caller) {
                return;
            }
        }
        let agent = asked.agent().clone();
        let requests = self.calls.requests.entry(agent.clone()).or_default();
        if requests.len() >= MOST_REQUESTS {
            if let Some(plugin) = self.work.get_mut(caller).and_then(|work| work.turn.take()) {
                self.end_turn(&plugin, caller);
            }
            return self.pause(caller);
        }
        self.calls.n_asked += 1;
        let name = format!("{}-{}", shared.clock.now().as_millisecond(), self.calls.n_asked);
        let node_key = claim.map(|claim| sealing_key(shared, &claim.node_name)).unwrap_or_default();
        requests.insert(name.clone(), CsiRequest { node_key, ..asked.request(volume, claim) });
        tracing::debug!(request = name, call = %asked.call(), volume = %caller.0, alloc = caller.1, agent = %agent, "an agent is asked");
        if let Some(work) = self.work.get_mut(caller) {
            work.call = Some(name.clone());
        }
        self.calls.by_name.insert(name, Call { caller: caller.clone(), asked });
        shared.due.nodes.insert(agent);
    }

    /// Takes in what a node's agent has answered.
    pub(super) fn take_answers(&mut self, shared: &mut Shared, node: &NodeName, object: &ClientNode) {
        if self.calls.by_name.is_empty() {
            return;
        }
        let print = object.status.as_ref().and_then(|status| status.fingerprint.as_ref());
        for (name, answer) in print.into_iter().flat_map(|print| &print.csi_answers) {
            let is_asked = self.calls.by_name.get(name).is_some_and(|call| call.asked.agent() == node);
            if is_asked && let Some(call) = self.withdraw(shared, name) {
                self.take_answer(shared, &call, answer);
            }
        }
    }

    fn take_answer(&mut self, shared: &mut Shared, call: &Call, answer: &CsiAnswer) {
        let caller = &call.caller;
        tracing::debug!(volume = %caller.0, alloc = caller.1, call = %call.asked.call(), error = answer.error, "an agent has answered");
        if let Asked::Provider(asked) = &call.asked {
            self.take_provided(shared, caller, asked, answer);
            return self.advance_claim(shared, caller);
        }
        let claim = Self::stored_volume(shared, &caller.0).and_then(|volume| {
            let claims = volume.status.as_ref().map(|status| &status.claims[..]).unwrap_or_default();
            claims.iter().find(|claim| claim.alloc_id == caller.1).cloned()
        });
        let Some(claim) = claim else { return self.end_work(shared, caller) };
        match &call.asked {
            Asked::Provider(_) => {}
            Asked::Publish(asked) => self.take_published(shared, caller, asked, answer),
            Asked::Unpublish(asked) => {
                let answered = asked.answered(match (answer.error.is_empty(), answer.retryable) {
                    (true, _) => ControllerAnswer::Done,
                    (false, true) => ControllerAnswer::Retryable(answer.error.clone()),
                    (false, false) => ControllerAnswer::Failed(answer.error.clone()),
                });
                match answered {
                    Ok(Answered::Checkpoint(state)) => self.go_on_from(shared, caller, state),
                    Ok(Answered::Next(skipped)) => self.try_next(caller, skipped),
                    Err(error) => self.fail(shared, caller, &claim, &error),
                }
            }
            Asked::Node(asked) => {
                let is_done = answer.error.is_empty();
                let said = if is_done { NodeAnswer::Done } else { NodeAnswer::Failed(answer.error.clone()) };
                match asked.answered(said) {
                    Ok(state) => self.go_on_from(shared, caller, state),
                    Err(error) => self.fail(shared, caller, &claim, &error),
                }
            }
        }
        self.advance_claim(shared, caller);
    }

    fn take_published(&mut self, shared: &mut Shared, caller: &Caller, asked: &ControllerCall, answer: &CsiAnswer) {
        let said = |state, error: &str| Attachment {
            alloc_id: caller.1.clone(),
            state,
            context: answer.context.clone(),
            error: error.to_owned(),
        };
        let outcome = if answer.error.is_empty() {
            said(AttachState::Attached, "")
        } else if answer.retryable {
            let reason = answer.error.clone();
            return self.try_next(caller, Skipped { node: asked.controller.clone(), reason });
        } else {
            tracing::warn!(volume = %caller.0, alloc = caller.1, error = answer.error, "a volume cannot be attached");
            said(AttachState::Failed, &answer.error)
        };
        self.attachments.entry(caller.0.clone()).or_default().push(outcome);
        shared.due.volumes.insert(caller.0.clone());
        self.end_work(shared, caller);
    }

    /// An agent did what it was asked for: earlier failures do not count any more.
    fn go_on_from(&mut self, shared: &mut Shared, caller: &Caller, state: ClaimState) {
        self.reach(shared, caller, state);
        if let Some(work) = self.work.get_mut(caller) {
            work.n_failed = 0;
        }
    }

    pub(super) fn try_next(&mut self, caller: &Caller, skipped: Skipped) {
        if let Some(work) = self.work.get_mut(caller) {
            work.tried.push(skipped);
        }
    }

    /// Calls that the agent of a node will not answer any more are taken back.
    pub(super) fn review_calls(&mut self, shared: &mut Shared, node: &NodeName) {
        if self.calls.by_name.is_empty() {
            return;
        }
        let names: Vec<String> =
            self.calls.requests.get(node).into_iter().flatten().map(|(name, _)| name.clone()).collect();
        for name in names {
            let Some(Call { asked, .. }) = self.calls.by_name.get(&name) else { continue };
            let known = shared.view.node(node);
            let is_lost = match asked {
                Asked::Provider(ProviderCall { call: CsiCall::NodeExpand, .. }) | Asked::Node(_) => {
                    known.is_none_or(|known| known.phase == NodePhase::Down)
                }
                Asked::Publish(_) | Asked::Unpublish(_) | Asked::Provider(_) => {
                    let runs_it = |known: &&Arc<drover_core::model::Node>| {
                        let plugin = known.csi.get(asked.plugin());
                        known.phase == NodePhase::Ready
                            && plugin.is_some_and(|plugin| plugin.controller && plugin.healthy)
                    };
                    !known.is_some_and(|known| runs_it(&known))
                }
            };
            if is_lost && let Some(call) = self.withdraw(shared, &name) {
                self.advance_claim(shared, &call.caller);
            }
        }
    }

    /// The answer is no longer needed.
    pub(super) fn drop_call(&mut self, shared: &mut Shared, name: &str) {
        self.withdraw(shared, name);
    }

    /// Takes a request back; whose turn it is then goes on.
    fn withdraw(&mut self, shared: &mut Shared, name: &str) -> Option<Call> {
        let call = self.calls.by_name.remove(name)?;
        let agent = call.asked.agent().clone();
        if let Some(requests) = self.calls.requests.get_mut(&agent) {
            requests.remove(name);
            if requests.is_empty() {
                self.calls.requests.remove(&agent);
            }
        }
        shared.due.nodes.insert(agent);
        if let Some(work) = self.work.get_mut(&call.caller) {
            (work.call, work.turn) = (None, None);
        }
        if call.asked.call().takes_lock() {
            let plugin = call.asked.plugin().to_owned();
            self.end_turn(&plugin, &call.caller);
        }
        Some(call)
    }

    pub(super) fn end_turn(&mut self, plugin: &str, caller: &Caller) {
        if let Some(next) = self.calls.lock.finish(plugin, caller) {
            self.ready.insert(next.0);
        }
    }
}
