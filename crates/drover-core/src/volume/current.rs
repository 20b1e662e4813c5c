//! What a volume's status is to say now: what became of its claims, who takes one, how its plugin fares, and what
//! people read of it.
//!
//! Input: the volume as it is stored, what happened since, the view. Output: the status to store. It is written as a
//! whole, under the precondition that no one else wrote since. Must never know how a status is written.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::condition::{Wanted, merged};
use drover_api::csi_volume::{
    AttachState, CSIVolumeSpec, CSIVolumeStatus, Claim, ClaimState, Topology, VolumeConditionType as Type, VolumePhase,
    VolumeReason as Reason,
};
use jiff::Timestamp;

use super::attach;
use super::claim::{self, Attachment, ClaimError, ClaimRequest, Update};
use super::columns::with_columns;
use super::plugin::{Capability, Plugin, refreshed};
use super::provision::{Nameless, is_for_others_to_make, is_to_be_made, is_to_be_validated};
use super::quantity::bytes;
use super::register::violations;
use super::release::external_id;
use super::snapshot::SnapshotOutcome;
use crate::ids::ObjectKey;
use crate::snapshot::ClusterView;

/// What a volume's status follows from.
#[derive(Clone, Copy, Debug)]
pub struct VolumeFacts<'a> {
    /// The volume, by its namespace and its id.
    pub volume: &'a ObjectKey,
    /// Its spec.
    pub spec: &'a CSIVolumeSpec,
    /// Its status, as it is stored.
    pub stored: &'a CSIVolumeStatus,
    /// What its object says besides.
    pub object: ObjectFacts<'a>,
    /// The volume that names the same volume of the provider and comes before it, if one does.
    pub before: Option<&'a ObjectKey>,
    /// Nodes and allocations.
    pub view: &'a ClusterView,
    /// Its plugin, where it is known.
    pub plugin: Option<&'a Plugin>,
    /// How far releases have come.
    pub updates: &'a [Update],
    /// What controllers answered.
    pub attachments: &'a [Attachment],
    /// The claims that are wanted and not taken yet, in the order in which they are.
    pub requests: &'a [ClaimRequest],
    /// What its provider has made of it since.
    pub provided: Option<&'a Provided>,
    /// What became of a request about its snapshots.
    pub snapshots: Option<&'a SnapshotOutcome>,
    /// Why its provider has not done what is wanted; empty where nothing is wrong.
    pub provider_error: &'a str,
    /// The ids of allocations whose claims could not be released for so often that a person is needed.
    pub stuck: &'a BTreeSet<String>,
}

/// What the object of a volume says besides its spec and its status.
#[derive(Clone, Copy, Debug)]
pub struct ObjectFacts<'a> {
    /// The generation of its spec.
    pub generation: i64,
    /// Whether it is being deleted: then no one may take it any more.
    pub is_deleting: bool,
    /// The name under which drover has its provider make it.
    pub provider_name: &'a str,
}

/// What a provider has made: a volume, or a volume larger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provided {
    /// Its id of the volume; empty where that is known.
    pub external_id: String,
    /// What it wants back at each use.
    pub context: BTreeMap<String, String>,
    /// The volume's size in bytes, where it says that.
    pub capacity_bytes: Option<i64>,
    /// Where the volume can be reached from.
    pub topologies: Vec<Topology>,
    /// The generation of the spec that it was asked about; 0 where the answer says nothing of the whole spec.
    pub generation: i64,
}

impl Provided {
    /// Whether a status says all of it.
    pub fn is_told_by(&self, status: &CSIVolumeStatus) -> bool {
        (self.external_id.is_empty() || self.external_id == status.external_id)
            && self.generation <= status.validated_generation
            && self.capacity_bytes.is_none_or(|size| size <= bytes(&status.capacity).unwrap_or(0))
    }
}

/// What a volume's status is to say.
#[derive(Clone, Debug, PartialEq)]
pub struct Current {
    /// It.
    pub status: CSIVolumeStatus,
    /// The claims that could not be taken, and why.
    pub refused: Vec<(ClaimRequest, ClaimError)>,
    /// The claims that are taken with it.
    pub taken: Vec<ClaimRequest>,
}

/// Says what a volume's status is to be. O((updates + requests) × claims).
pub fn current(facts: &VolumeFacts<'_>, now: Timestamp) -> Current {
    let (view, spec) = (facts.view, facts.spec);
    let mut status = refreshed(&first(facts), facts.plugin);
    status.observed_generation = facts.object.generation;
    let is_valid = violations(facts.volume, spec).is_empty() && copy_fault(facts, &status).is_none();
    if let Some(provided) = facts.provided {
        take_in(&mut status, provided);
    }
    if let Some(outcome) = facts.snapshots {
        outcome.tell(&mut status);
    }
    let provider = provider_part(facts, &status);
    status.schedulable &= is_valid && !facts.object.is_deleting && provider == ProviderPart::Done;
    if provider == ProviderPart::Make && is_valid && !facts.object.is_deleting {
        // The provider is asked when this is stored.
        status.created_by_drover = true;
        facts.object.provider_name.clone_into(&mut status.provider_name);
    }
    let is_pending = match provider {
        ProviderPart::Make | ProviderPart::MakeElsewhere | ProviderPart::Confirm | ProviderPart::InUseElsewhere => true,
        ProviderPart::Done | ProviderPart::Refused => false,
    };
    if is_pending && status.claims.is_empty() {
        status.phase = VolumePhase::Pending;
    } else if status.phase == VolumePhase::Pending {
        status.phase = VolumePhase::Available;
    }
    if !facts.updates.is_empty() {
        status = claim::updated(&status, facts.updates, now);
    }
    if !facts.attachments.is_empty() {
        status = claim::attached(&status, facts.attachments, now);
    }
    status = claim::seen(view, facts.volume, status);
    let (mut refused, mut taken) = (Vec::new(), Vec::new());
    for request in facts.requests {
        match claim::add(view, spec, status.clone(), request, now) {
            Ok(Some(with_it)) => {
                taken.push(request.clone());
                status = with_it;
            }
            Ok(None) => {}
            Err(error) => refused.push((request.clone(), error)),
        }
    }
    attach_what_needs_no_controller(facts, &mut status);
    status.conditions =
        merged(&facts.stored.conditions, conditions(facts, &status, provider), facts.object.generation, now);
    let mut status = with_columns(&status);
    if differs(facts.stored, &status) {
        status.modified_at = Some(now);
    }
    Current { status, refused, taken }
}

fn take_in(status: &mut CSIVolumeStatus, provided: &Provided) {
    if !provided.external_id.is_empty() {
        status.external_id.clone_from(&provided.external_id);
        status.context.clone_from(&provided.context);
        status.topologies.clone_from(&provided.topologies);
    }
    status.validated_generation = status.validated_generation.max(provided.generation);
    if let Some(size) = provided.capacity_bytes.filter(|size| bytes(&status.capacity).unwrap_or(0) < *size) {
        status.capacity = size.to_string();
    }
}

/// What is missing from the provider before a volume is given to anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProviderPart {
    /// Nothing.
    Done,
    /// It has to make the volume.
    Make,
    /// Others have to have it made.
    MakeElsewhere,
    /// It has to confirm what the spec says.
    Confirm,
    /// It does not confirm a change of the spec.
    Refused,
    /// Another volume of the cluster is the same there.
    InUseElsewhere,
}

/// A volume that was confirmed once goes on being used while a change of its spec is asked about.
fn provider_part(facts: &VolumeFacts<'_>, status: &CSIVolumeStatus) -> ProviderPart {
    if facts.before.is_some() {
        return ProviderPart::InUseElsewhere;
    }
    if is_to_be_made(facts.spec, status, facts.plugin) {
        return ProviderPart::Make;
    }
    if is_for_others_to_make(facts.spec, status, facts.plugin) {
        return ProviderPart::MakeElsewhere;
    }
    let is_asked = is_to_be_validated(facts.spec, status, facts.object.generation, facts.plugin);
    match (is_asked, status.validated_generation, facts.provider_error.is_empty()) {
        (true, 0, _) => ProviderPart::Confirm,
        (true, _, false) => ProviderPart::Refused,
        (true, _, true) | (false, _, _) => ProviderPart::Done,
    }
}

/// Why the volume cannot be the copy that is asked for: only the plugin knows that, so that the API server takes it.
fn copy_fault(facts: &VolumeFacts<'_>, status: &CSIVolumeStatus) -> Option<String> {
    let spec = facts.spec;
    let copied = [("cloneID", &spec.clone_id), ("snapshotID", &spec.snapshot_id)];
    let (field, source) = copied.into_iter().find(|(_, id)| !id.is_empty())?;
    let is_nameless = spec.external_id.is_empty() && status.external_id.is_empty();
    (is_nameless && Nameless::with(facts.plugin) == Nameless::OwnId).then(|| {
        format!(
            "spec.{field}: no controller of plugin {} can make volumes, so that there is no copy of {source}; take it out, or name a volume that is there in spec.externalID",
            spec.plugin_id
        )
    })
}

/// Why the size that is asked for cannot be: only the plugin knows that, so that the API server takes it.
fn growth_fault(facts: &VolumeFacts<'_>, status: &CSIVolumeStatus) -> Option<String> {
    let range = facts.spec.capacity.as_ref()?;
    let (wanted, current) = (bytes(&range.min)?, bytes(&status.capacity)?);
    let cannot = facts.plugin.and_then(|plugin| plugin.can(Capability::Expand)) == Some(false);
    (cannot && current > 0 && wanted > current).then(|| {
        format!(
            "spec.capacity.min: {} is above the volume's size {}, and no controller of plugin {} can make volumes larger; lower it",
            range.min, status.capacity, facts.spec.plugin_id
        )
    })
}

/// Whether a status has to be written: counts of the plugin's instances alone are told with the next change.
pub fn differs(stored: &CSIVolumeStatus, current: &CSIVolumeStatus) -> bool {
    let told = CSIVolumeStatus {
        controllers_healthy: stored.controllers_healthy,
        controllers_expected: stored.controllers_expected,
        nodes_healthy: stored.nodes_healthy,
        nodes_expected: stored.nodes_expected,
        modified_at: stored.modified_at,
        ..current.clone()
    };
    told != *stored
}

/// The stored status, or that of a volume which was never reconciled.
fn first(facts: &VolumeFacts<'_>) -> CSIVolumeStatus {
    if facts.stored.observed_generation >= 0 {
        return facts.stored.clone();
    }
    let required = facts.spec.topology_request.as_ref().map(|request| request.required.clone());
    CSIVolumeStatus {
        phase: VolumePhase::Available,
        external_id: facts.spec.external_id.clone(),
        topologies: required.unwrap_or_default(),
        claims: facts.stored.claims.clone(),
        access_mode: facts.stored.access_mode,
        attachment_mode: facts.stored.attachment_mode,
        ..CSIVolumeStatus::default()
    }
}

fn attach_what_needs_no_controller(facts: &VolumeFacts<'_>, status: &mut CSIVolumeStatus) {
    let looked_at = status.clone();
    let attaching = attach::AttachFacts {
        volume: facts.volume,
        spec: facts.spec,
        status: &looked_at,
        view: facts.view,
        plugin: facts.plugin,
        tried: &[],
    };
    for (claim, looked_at) in status.claims.iter_mut().zip(&looked_at.claims) {
        if attach::step(&attaching, looked_at) == attach::AttachStep::Attached {
            claim.attach = AttachState::Attached;
            claim.error.clear();
        }
    }
}

/// Whether the volume can be given to anybody, and why not.
fn schedulable(facts: &VolumeFacts<'_>, status: &CSIVolumeStatus, provider: ProviderPart) -> Wanted<Type, Reason> {
    let (plugin, error) = (&facts.spec.plugin_id, facts.provider_error);
    if status.schedulable {
        return Wanted::yes(Type::Schedulable, Reason::PluginHealthy, format!("plugin {plugin} is healthy"));
    }
    if facts.object.is_deleting {
        let why = if error.is_empty() { String::new() } else { format!(": {error}") };
        let text = format!("it is being deleted and cannot be claimed{why}");
        return Wanted::no(Type::Schedulable, Reason::Reaping, text);
    }
    let mut text: Vec<String> = violations(facts.volume, facts.spec).iter().map(ToString::to_string).collect();
    text.extend(copy_fault(facts, status));
    if !text.is_empty() {
        return Wanted::no(Type::Schedulable, Reason::InvalidSpec, text.join("; "));
    }
    if let Some(before) = facts.before {
        let handle = external_id(facts.volume, facts.spec, status);
        let text = format!(
            "spec.externalID: volume {before} names {handle} of plugin {plugin} already, and two volumes never share one; delete this one, or name another volume of the provider (the role drover-volume-admin may)"
        );
        return Wanted::no(Type::Schedulable, Reason::HandleInUse, text);
    }
    let missing = format!(
        "no healthy instance of plugin {plugin} is known that can serve it; look at the job that runs it (its task has csiPlugin.id {plugin}), or at the cluster's driver of this name"
    );
    if provider != ProviderPart::Make && !facts.plugin.is_some_and(Plugin::is_schedulable) {
        return Wanted::no(Type::Schedulable, Reason::PluginMissing, missing);
    }
    let (reason, text) = match (provider, error.is_empty()) {
        (ProviderPart::Make, true) => (Reason::Creating, format!("plugin {plugin} makes it")),
        (ProviderPart::Make, false) => (Reason::CreateFailed, format!("plugin {plugin} cannot make it: {error}")),
        (ProviderPart::MakeElsewhere, _) => (
            Reason::CreateFailed,
            format!(
                "spec.externalID is empty, and plugin {plugin} is a driver of the cluster, by which drover makes, copies and enlarges nothing; make the volume with a PersistentVolumeClaim or at the provider, and name its volumeHandle in spec.externalID"
            ),
        ),
        (ProviderPart::Confirm, true) => {
            (Reason::Validating, format!("plugin {plugin} is asked whether its volume can be used as spec says"))
        }
        (ProviderPart::Confirm, false) | (ProviderPart::Refused, _) => (
            Reason::InvalidSpec,
            format!(
                "plugin {plugin} does not confirm spec.capabilities: {error}; correct externalID, capabilities or secretsRef"
            ),
        ),
        (ProviderPart::Done | ProviderPart::InUseElsewhere, _) => (Reason::PluginMissing, missing),
    };
    Wanted::no(Type::Schedulable, reason, text)
}

fn conditions(facts: &VolumeFacts<'_>, status: &CSIVolumeStatus, provider: ProviderPart) -> Vec<Wanted<Type, Reason>> {
    let schedulable = schedulable(facts, status, provider);
    let growth = growth_fault(facts, status);
    let stuck = claim::past(status).find(|claim| facts.stuck.contains(&claim.alloc_id));
    let past = claim::past(status).next();
    let attaching = |claim: &&Claim| claim.state == ClaimState::Taken && claim.attach == AttachState::Pending;
    let pending = status.claims.iter().find(attaching);
    let ready = match (stuck, schedulable.reason) {
        (Some(claim), _) => Wanted::no(Type::Ready, Reason::DetachFailed, waits(claim)),
        (None, Reason::PluginHealthy) if growth.is_some() => {
            Wanted::no(Type::Ready, Reason::InvalidSpec, growth.clone().unwrap_or_default())
        }
        (None, Reason::PluginHealthy) if status.claims.is_empty() => {
            Wanted::yes(Type::Ready, Reason::Available, "it has no claims")
        }
        (None, Reason::PluginHealthy) => {
            Wanted::yes(Type::Ready, Reason::Claimed, "it is held by those in status.claims")
        }
        (None, reason) => Wanted::no(Type::Ready, reason, schedulable.message.clone()),
    };
    let reconciling = match (past, pending) {
        (Some(claim), _) => Some(Wanted::yes(Type::Reconciling, Reason::Reaping, waits(claim))),
        (None, Some(claim)) => Some(Wanted::yes(Type::Reconciling, Reason::Attaching, waits(claim))),
        (None, None) if matches!(schedulable.reason, Reason::Creating | Reason::Validating) => {
            Some(Wanted::yes(Type::Reconciling, schedulable.reason, schedulable.message.clone()))
        }
        (None, None) => None,
    };
    let stalled = match (stuck, schedulable.reason) {
        (Some(claim), _) => Some(Wanted::yes(Type::Stalled, Reason::DetachFailed, waits(claim))),
        (None, reason @ (Reason::PluginMissing | Reason::InvalidSpec | Reason::CreateFailed | Reason::HandleInUse)) => {
            Some(Wanted::yes(Type::Stalled, reason, schedulable.message.clone()))
        }
        (None, _) => growth.map(|text| Wanted::yes(Type::Stalled, Reason::InvalidSpec, text)),
    };
    [Some(ready), Some(schedulable), reconciling, stalled].into_iter().flatten().collect()
}

/// What a claim waits for, for people.
fn waits(claim: &Claim) -> String {
    let (alloc, node) = (&claim.allocation, &claim.node_name);
    if !claim.error.is_empty() {
        return format!("allocation {alloc} on node {node}: {}", claim.error);
    }
    match claim.state {
        ClaimState::Taken => format!("it is being attached to node {node} for allocation {alloc}"),
        ClaimState::Unpublishing => format!("node {node} unmounts what allocation {alloc} has used"),
        ClaimState::NodeDetached | ClaimState::ControllerDetached | ClaimState::ReadyToFree => {
            format!("it is being detached from node {node}, where allocation {alloc} has used it")
        }
    }
}
