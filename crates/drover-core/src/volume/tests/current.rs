//! What a volume's status is to say, and when an allocation may mount it (sections 3, 6.1 and CONVENTIONS 2).

use std::collections::{BTreeMap, BTreeSet};

use drover_api::condition::ConditionStatus;
use drover_api::csi_volume::{
    AttachState, CapacityRange, Topology, TopologyRequest, VolumeConditionType as Type, VolumeReason as Reason,
};

use super::*;
use crate::volume::attach;
use crate::volume::claim::Attachment;
use crate::volume::current::{Current, ObjectFacts, Provided, VolumeFacts, current, differs};

/// What happened since the last look.
#[derive(Default)]
pub(super) struct Since<'a> {
    requests: Vec<ClaimRequest>,
    updates: Vec<Update>,
    attachments: Vec<Attachment>,
    provided: Option<&'a Provided>,
    provider_error: &'a str,
    stuck: BTreeSet<String>,
    is_deleting: bool,
    before: Option<&'a ObjectKey>,
}

impl Stage {
    pub(super) fn look(&self, since: &Since<'_>) -> Current {
        let (spec, stored) = (self.spec(), self.status());
        let facts = VolumeFacts {
            volume: &self.volume,
            spec: &spec,
            stored: &stored,
            object: ObjectFacts { generation: 1, is_deleting: since.is_deleting, provider_name: "drover-v1" },
            before: since.before,
            view: &self.world.view,
            plugin: self.plugins.get("p"),
            updates: &since.updates,
            attachments: &since.attachments,
            requests: &since.requests,
            provided: since.provided,
            snapshots: None,
            provider_error: since.provider_error,
            stuck: &since.stuck,
        };
        current(&facts, now())
    }
}

fn condition(status: &CSIVolumeStatus, kind: Type) -> Option<(ConditionStatus, Reason, String)> {
    let found = status.conditions.iter().find(|condition| condition.r#type == kind)?;
    Some((found.status, found.reason, found.message.clone()))
}

fn reason(status: &CSIVolumeStatus, kind: Type) -> Option<Reason> {
    condition(status, kind).map(|(_, reason, _)| reason)
}

#[test]
fn of_two_that_wait_the_first_one_takes_the_claim_and_the_other_one_is_told() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    stage.alloc("a1", "n-1");
    stage.alloc("a2", "n-2");
    let requests = vec![stage.request("a1", ClaimMode::Write), stage.request("a2", ClaimMode::Write)];
    let seen = stage.look(&Since { requests, ..Since::default() });
    assert_eq!(seen.taken.iter().map(|request| request.alloc_id.as_str()).collect::<Vec<_>>(), ["a1"]);
    let [(refused, error)] = &seen.refused[..] else { panic!("{:?}", seen.refused) };
    assert_eq!((refused.alloc_id.as_str(), error.is_retryable()), ("a2", true));
    assert_eq!(seen.status.claims[0].attach, AttachState::Pending, "the controller has to attach it first");
    assert_eq!(reason(&seen.status, Type::Reconciling), Some(Reason::Attaching));
    let columns = &seen.status.columns;
    assert_eq!((seen.status.phase, &*columns.claims, &*columns.reason), (VolumePhase::Claimed, "0/1/0", "Attaching"));
}

#[test]
fn a_look_at_what_is_stored_changes_nothing() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    let first = stage.look(&Since::default()).status;
    assert!(differs(&stage.status(), &first), "conditions are new");
    stage.store(first.clone());
    assert_eq!(stage.look(&Since::default()).status, first);
    // How many nodes are healthy is told with the next change.
    stage.put_node(plugin_node("n-3", |_| {}));
    let counted = stage.look(&Since::default()).status;
    assert_eq!((counted.nodes_healthy, differs(&first, &counted)), (3, false));
}

#[test]
fn what_a_controller_answers_opens_the_volume_and_without_a_controller_nobody_is_asked() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    let context = BTreeMap::from([("device".to_owned(), "sdb".to_owned())]);
    let said = |state, context: &BTreeMap<_, _>, error: &str| Attachment {
        alloc_id: "a1".to_owned(),
        state,
        context: context.clone(),
        error: error.to_owned(),
    };
    let attachments = vec![said(AttachState::Attached, &context, "")];
    let claim = stage.look(&Since { attachments, ..Since::default() }).status.claims.remove(0);
    assert_eq!((claim.attach, claim.publish_context, &*claim.error), (AttachState::Attached, context.clone(), ""));
    let attachments = vec![said(AttachState::Failed, &BTreeMap::new(), "no such disk")];
    let claim = stage.look(&Since { attachments, ..Since::default() }).status.claims.remove(0);
    assert_eq!((claim.attach, &*claim.error), (AttachState::Failed, "no such disk"));
    // An answer that comes after the end opens nothing.
    stage.end("a1");
    stage.store(stage.look(&Since::default()).status);
    let attachments = vec![said(AttachState::Attached, &context, "")];
    let claim = stage.look(&Since { attachments, ..Since::default() }).status.claims.remove(0);
    assert_eq!((claim.state, claim.attach), (ClaimState::Unpublishing, AttachState::Pending));

    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    for node in ["n-1", "n-2"] {
        stage.put_node(plugin_node(node, |info| {
            info.controller = false;
            info.requires_controller_plugin = false;
        }));
    }
    // What the controller said while there was one holds until another one speaks.
    stage.plugins = Plugins::default();
    for node in stage.world.view.nodes().cloned().collect::<Vec<_>>() {
        stage.plugins.put_node(&node);
    }
    stage.change_status(|status| status.controller_required = false);
    stage.alloc("a1", "n-1");
    let requests = vec![stage.request("a1", ClaimMode::Write)];
    let seen = stage.look(&Since { requests, ..Since::default() });
    assert_eq!(seen.status.claims[0].attach, AttachState::Attached);
}

#[test]
fn attaching_asks_one_controller_after_the_other_and_then_says_why_it_waits() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    stage.holder("a1", "n-2", ClaimMode::Write);
    let (spec, status) = (stage.spec(), stage.status());
    let mut tried = Vec::new();
    let mut asked = Vec::new();
    let waits = loop {
        let facts = attach::AttachFacts {
            volume: &stage.volume,
            spec: &spec,
            status: &status,
            view: &stage.world.view,
            plugin: stage.plugins.get("p"),
            tried: &tried,
        };
        match attach::step(&facts, &status.claims[0]) {
            attach::AttachStep::Controller(call) => {
                asked.push(format!("{} attaches {} to {}", call.controller, call.external_id, call.external_node_id));
                tried.push(Skipped { node: call.controller, reason: "busy".to_owned() });
            }
            attach::AttachStep::Wait(why) => break why,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(asked, ["n-1 attaches vol-1 to i-n-2", "n-2 attaches vol-1 to i-n-2"]);
    assert!(waits.contains("n-1: busy, n-2: busy"), "{waits}");
}

#[test]
fn conditions_say_what_a_volume_waits_for() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    let free = stage.look(&Since::default()).status;
    assert_eq!(reason(&free, Type::Ready), Some(Reason::Available));
    assert_eq!((reason(&free, Type::Reconciling), reason(&free, Type::Stalled)), (None, None));
    stage.holder("a1", "n-1", ClaimMode::Write);
    stage.end("a1");
    let reaping = stage.look(&Since::default()).status;
    assert_eq!((reaping.phase, reason(&reaping, Type::Reconciling)), (VolumePhase::Reaping, Some(Reason::Reaping)));
    let error = "the driver is busy".to_owned();
    let updates = vec![Update::Release { alloc_id: "a1".to_owned(), state: ClaimState::NodeDetached, error }];
    let stuck = BTreeSet::from(["a1".to_owned()]);
    let stuck = stage.look(&Since { updates, stuck, ..Since::default() }).status;
    let (status, reason_of, message) = condition(&stuck, Type::Stalled).expect("a condition");
    assert_eq!((status, reason_of), (ConditionStatus::True, Reason::DetachFailed));
    assert!(message.contains("n-1") && message.contains("the driver is busy"), "{message}");
    assert_eq!(condition(&stuck, Type::Ready).map(|(status, ..)| status), Some(ConditionStatus::False));

    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    stage.remove_node("n-1");
    stage.remove_node("n-2");
    let missing = stage.look(&Since::default()).status;
    assert!(!missing.schedulable);
    assert_eq!(reason(&missing, Type::Stalled), Some(Reason::PluginMissing));
}

#[test]
fn a_volume_that_is_being_deleted_is_given_to_nobody() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    stage.alloc("a1", "n-1");
    let requests = vec![stage.request("a1", ClaimMode::Write)];
    let seen = stage.look(&Since { requests, is_deleting: true, ..Since::default() });
    assert!(seen.taken.is_empty() && !seen.status.schedulable, "{seen:?}");
}

#[test]
fn a_volume_without_an_id_is_made_before_anybody_uses_it() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    let spec = CSIVolumeSpec { external_id: String::new(), ..stage.spec() };
    stage.put_volume(&v1(), spec, CSIVolumeStatus { observed_generation: -1, ..CSIVolumeStatus::default() });
    let unmade = stage.look(&Since::default()).status;
    assert_eq!((unmade.phase, unmade.schedulable), (VolumePhase::Pending, false));
    assert_eq!(reason(&unmade, Type::Reconciling), Some(Reason::Creating));
    let failed = stage.look(&Since { provider_error: "no room", ..Since::default() }).status;
    let (_, reason_of, message) = condition(&failed, Type::Stalled).expect("a condition");
    assert_eq!(reason_of, Reason::CreateFailed);
    assert!(message.contains("no room"), "{message}");
    stage.store(unmade);
    let provided = Provided {
        external_id: "vol-7".to_owned(),
        capacity_bytes: Some(1 << 30),
        generation: 1,
        ..Provided::default()
    };
    let made = stage.look(&Since { provided: Some(&provided), ..Since::default() }).status;
    assert_eq!((made.phase, made.schedulable, &*made.external_id), (VolumePhase::Available, true, "vol-7"));
    assert_eq!(made.capacity, (1 << 30).to_string());
    stage.store(made.clone());
    assert_eq!(stage.look(&Since::default()).status.external_id, "vol-7", "it is made once");
}

#[test]
fn a_volume_that_exists_is_confirmed_by_its_plugin_before_anybody_uses_it() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    stage.change_status(|status| status.validated_generation = 0);
    let asked = stage.look(&Since::default()).status;
    assert_eq!((asked.phase, asked.schedulable), (VolumePhase::Pending, false));
    assert_eq!(reason(&asked, Type::Schedulable), Some(Reason::Validating));
    assert_eq!(reason(&asked, Type::Reconciling), Some(Reason::Validating));
    let refused = stage.look(&Since { provider_error: "no block devices", ..Since::default() }).status;
    let (_, why, message) = condition(&refused, Type::Stalled).expect("a condition");
    assert_eq!(why, Reason::InvalidSpec);
    assert!(message.contains("no block devices") && message.contains("correct externalID"), "{message}");
    let provided = Provided { generation: 1, ..Provided::default() };
    let confirmed = stage.look(&Since { provided: Some(&provided), ..Since::default() }).status;
    assert_eq!((confirmed.phase, confirmed.schedulable), (VolumePhase::Available, true));
    assert_eq!((confirmed.validated_generation, confirmed.external_id), (1, stage.status().external_id));
}

#[test]
fn a_change_is_confirmed_while_the_volume_is_used_and_a_refused_one_is_given_to_nobody() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    // The present generation is 1: this is what was confirmed before it.
    stage.change_status(|status| status.validated_generation = 7);
    assert!(stage.look(&Since::default()).status.schedulable, "it goes on as it was");
    let refused = stage.look(&Since { provider_error: "not that mode", ..Since::default() }).status;
    assert_eq!((refused.schedulable, reason(&refused, Type::Stalled)), (false, Some(Reason::InvalidSpec)));
    for name in ["n-1", "n-2"] {
        stage.put_node(plugin_node(name, |info| info.healthy = false));
    }
    let away = stage.look(&Since { provider_error: "no controller", ..Since::default() }).status;
    assert_eq!(reason(&away, Type::Schedulable), Some(Reason::PluginMissing));
    for name in ["n-1", "n-2"] {
        stage.put_node(plugin_node(name, |info| info.requires_controller_plugin = false));
    }
    stage.change_status(|status| status.validated_generation = 0);
    assert!(stage.look(&Since::default()).status.schedulable, "without a controller nobody is asked");
}

#[test]
fn a_size_that_no_controller_can_make_is_told() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    for name in ["n-1", "n-2"] {
        stage.put_node(plugin_node(name, |info| info.capabilities = vec!["PUBLISH_UNPUBLISH_VOLUME".to_owned()]));
    }
    let capacity = Some(CapacityRange { min: "20Gi".to_owned(), max: String::new() });
    let (spec, status) = (stage.spec(), stage.status());
    stage.put_volume(
        &v1(),
        CSIVolumeSpec { capacity, ..spec },
        CSIVolumeStatus { capacity: "10Gi".to_owned(), ..status },
    );
    let seen = stage.look(&Since::default()).status;
    let (_, why, message) = condition(&seen, Type::Stalled).expect("a condition");
    assert_eq!((why, seen.schedulable), (Reason::InvalidSpec, true), "it can be used as it is");
    assert!(message.starts_with("spec.capacity.min: 20Gi is above the volume's size 10Gi"), "{message}");
    assert_eq!(reason(&seen, Type::Ready), Some(Reason::InvalidSpec));
}

/// The volume without an id at its provider, which can do this, as it stands after the first look.
fn nameless(capabilities: &[&str], since: &Since<'_>, change: impl FnOnce(&mut CSIVolumeSpec)) -> CSIVolumeStatus {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    for name in ["n-1", "n-2"] {
        let capabilities = capabilities.iter().map(|name| (*name).to_owned()).collect();
        stage.put_node(plugin_node(name, |info| info.capabilities = capabilities));
    }
    let mut spec = CSIVolumeSpec { external_id: String::new(), ..stage.spec() };
    change(&mut spec);
    stage.put_volume(&v1(), spec, CSIVolumeStatus { observed_generation: -1, ..CSIVolumeStatus::default() });
    stage.look(since).status
}

#[test]
fn a_copy_is_refused_where_no_controller_makes_volumes() {
    let refused = |status: &CSIVolumeStatus| condition(status, Type::Schedulable).expect("a condition").2;
    let attaches = ["PUBLISH_UNPUBLISH_VOLUME"];
    let clone = nameless(&attaches, &Since::default(), |spec| spec.clone_id = "vol-9".to_owned());
    let no_copy = "no controller of plugin p can make volumes, so that there is no copy of";
    assert!(refused(&clone).starts_with(&format!("spec.cloneID: {no_copy} vol-9; ")), "{}", refused(&clone));
    assert_eq!((clone.schedulable, reason(&clone, Type::Stalled)), (false, Some(Reason::InvalidSpec)));
    let snapshot = nameless(&attaches, &Since::default(), |spec| spec.snapshot_id = "snap-2".to_owned());
    assert!(refused(&snapshot).starts_with(&format!("spec.snapshotID: {no_copy} snap-2; ")), "{}", refused(&snapshot));
    let own = nameless(&attaches, &Since::default(), |_| {});
    assert_ne!(reason(&own, Type::Stalled), Some(Reason::InvalidSpec), "it is no copy");
    let made = nameless(&["CREATE_DELETE_VOLUME"], &Since::default(), |spec| spec.clone_id = "vol-9".to_owned());
    assert_eq!(reason(&made, Type::Schedulable), Some(Reason::Creating));
}

#[test]
fn a_provider_is_asked_to_make_what_is_valid_and_stays() {
    let asked = |status: &CSIVolumeStatus| (status.created_by_drover, status.provider_name.clone());
    let (makes, no) = (["CREATE_DELETE_VOLUME"], (false, String::new()));
    let made = nameless(&makes, &Since::default(), |_| {});
    assert_eq!(asked(&made), (true, "drover-v1".to_owned()));
    let deleting = Since { is_deleting: true, ..Since::default() };
    assert_eq!(asked(&nameless(&makes, &deleting, |_| {})), no, "it is being deleted");
    let invalid = nameless(&makes, &Since::default(), |spec| spec.capabilities.clear());
    assert_eq!(asked(&invalid), no, "nothing says how it is used");
    let named = nameless(&makes, &Since::default(), |spec| spec.external_id = "vol-1".to_owned());
    assert_eq!(asked(&named), no, "it is there");
}

#[test]
fn a_volume_that_was_never_looked_at_begins_with_what_its_spec_says_and_who_holds_it() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    let required = vec![Topology { segments: BTreeMap::from([("zone".to_owned(), "a".to_owned())]) }];
    let request = TopologyRequest { required: required.clone(), ..TopologyRequest::default() };
    let (spec, held) = (CSIVolumeSpec { topology_request: Some(request), ..stage.spec() }, stage.status());
    stage.put_volume(&v1(), spec, CSIVolumeStatus { observed_generation: -1, validated_generation: 0, ..held.clone() });
    let first = stage.look(&Since::default()).status;
    assert_eq!((first.external_id.as_str(), first.topologies, first.observed_generation), ("vol-1", required, 1));
    let holders: Vec<_> = first.claims.iter().map(|claim| claim.alloc_id.as_str()).collect();
    assert_eq!(holders, ["a1"]);
    assert_eq!((first.access_mode, first.attachment_mode), (held.access_mode, held.attachment_mode));
    assert!(first.access_mode.is_some());
}

#[test]
fn a_size_is_told_only_where_it_is_above_the_volumes_and_nothing_can_make_it_larger() {
    let stalled = |can: bool, min: &str, capacity: &str| {
        let mut stage = Stage::new(AccessMode::SingleNodeWriter);
        let capability = if can { "EXPAND_VOLUME" } else { "PUBLISH_UNPUBLISH_VOLUME" };
        for name in ["n-1", "n-2"] {
            stage.put_node(plugin_node(name, |info| info.capabilities = vec![capability.to_owned()]));
        }
        let range = CapacityRange { min: min.to_owned(), max: String::new() };
        let (spec, status) = (stage.spec(), stage.status());
        stage.put_volume(
            &v1(),
            CSIVolumeSpec { capacity: Some(range), ..spec },
            CSIVolumeStatus { capacity: capacity.to_owned(), ..status },
        );
        reason(&stage.look(&Since::default()).status, Type::Stalled)
    };
    assert_eq!(stalled(false, "11Gi", "10Gi"), Some(Reason::InvalidSpec));
    for (can, min, capacity) in
        [(true, "11Gi", "10Gi"), (false, "10Gi", "10Gi"), (false, "9Gi", "10Gi"), (false, "1Gi", "")]
    {
        assert_eq!(stalled(can, min, capacity), None, "{min} of {capacity}");
    }
}
