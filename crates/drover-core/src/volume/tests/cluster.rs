//! Plugins that are drivers of the cluster, and volumes that it attaches.

use drover_api::csi_volume::{
    AttachState, PluginSource, PluginType, SecretRef, VolumeConditionType as Type, VolumeReason as Reason,
};
use drover_api::csi_volume::{CapacityRange, MountOptions};

use super::current::Since;
use super::*;
use crate::volume::attach;
use crate::volume::cluster::{Access, Attaching, Detaching, Seen, attaching, detaching, is_for_somebody, wanted};
use crate::volume::plugin::Capability;

/// A node on which the kubelet knows driver `p`.
fn registered(name: &str) -> Node {
    plugin_node(name, |info| {
        info.controller = false;
        info.source = PluginSource::Kubelet;
        info.requires_controller_plugin = false;
        info.capabilities.clear();
    })
}

/// Volume `v1` of a driver that the cluster runs on both nodes.
fn of_cluster(mode: AccessMode) -> Stage {
    let mut stage = Stage::new(mode);
    stage.plugins = Plugins::default();
    for name in ["n-1", "n-2"] {
        stage.put_node(registered(name));
    }
    stage.change_status(|status| status.validated_generation = 0);
    stage
}

fn status_of(stage: &Stage) -> CSIVolumeStatus {
    stage.look(&Since::default()).status
}

fn attach_step(stage: &Stage) -> attach::AttachStep {
    let (spec, status) = (stage.spec(), stage.status());
    let facts = attach::AttachFacts {
        volume: &stage.volume,
        spec: &spec,
        status: &status,
        view: &stage.world.view,
        plugin: stage.plugins.get("p"),
        tried: &[],
    };
    attach::step(&facts, &status.claims[0])
}

#[test]
fn a_driver_of_the_cluster_needs_no_controller_of_drovers() {
    let stage = of_cluster(AccessMode::SingleNodeWriter);
    let plugin = stage.plugins.get("p").expect("a plugin");
    assert!(plugin.is_of_cluster() && plugin.is_controller_required() && plugin.is_schedulable());
    assert_eq!((plugin.nodes_healthy(), plugin.nodes_expected(), plugin.controllers_healthy()), (2, 2, 0));
    let can = |capability| plugin.can(capability);
    assert_eq!(
        [Capability::AttachDetach, Capability::CreateDelete, Capability::Expand].map(can),
        [Some(true), Some(false), Some(false)]
    );
    let status = status_of(&stage);
    assert!(status.schedulable && status.controller_required, "nobody is asked to confirm it: {status:?}");
}

#[test]
fn whether_its_volumes_are_attached_the_cluster_says_before_or_after_the_driver_is_found() {
    let mut stage = of_cluster(AccessMode::SingleNodeWriter);
    stage.plugins.forgo_attaching("p");
    assert!(!stage.plugins.get("p").expect("a plugin").is_controller_required());
    let mut plugins = Plugins::default();
    plugins.forgo_attaching("p");
    assert_eq!(plugins.get("p"), None, "that makes no plugin");
    plugins.put_node(&registered("n-1"));
    let plugin = plugins.get("p").expect("a plugin");
    assert_eq!((plugin.is_controller_required(), plugin.can(Capability::AttachDetach)), (false, Some(false)));
    plugins.need_attaching("p");
    assert!(plugins.get("p").expect("a plugin").is_controller_required());
}

#[test]
fn a_job_never_takes_the_place_of_a_driver_of_the_cluster() {
    let mut stage = of_cluster(AccessMode::SingleNodeWriter);
    let job = super::plugin::plugin_job("thief", "service", &[("g", PluginType::Monolith, 3)]);
    stage.plugins.put_job(&job, &BTreeMap::new());
    let plugin = stage.plugins.get("p").expect("a plugin");
    assert!(plugin.is_of_cluster() && !plugin.needs_controller() && plugin.is_schedulable());
    assert_eq!((plugin.controllers_expected(), plugin.nodes_expected()), (0, 2));
    // As long as the cluster has the driver, wherever it runs.
    let mut plugins = Plugins::default();
    plugins.put_job(&job, &BTreeMap::new());
    assert!(!plugins.get("p").expect("a plugin").is_of_cluster());
    plugins.need_attaching("p");
    assert!(plugins.get("p").expect("a plugin").is_of_cluster());
    plugins.forget_driver("p");
    assert!(!plugins.get("p").expect("a plugin").is_of_cluster());
}

#[test]
fn a_claim_is_attached_by_the_cluster_or_at_once() {
    let mut stage = of_cluster(AccessMode::SingleNodeWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    assert_eq!(attach_step(&stage), attach::AttachStep::Cluster);
    assert_eq!(status_of(&stage).claims[0].attach, AttachState::Pending);
    stage.plugins.forgo_attaching("p");
    assert_eq!(attach_step(&stage), attach::AttachStep::Attached);
    assert_eq!(status_of(&stage).claims[0].attach, AttachState::Attached);
}

#[test]
fn a_release_goes_over_the_node_and_the_cluster() {
    let mut stage = of_cluster(AccessMode::SingleNodeWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    stage.end("a1");
    let mut script = Script { attached: AttachedBy::Cluster, ..Script::default() };
    stage.drive("a1", &mut script).expect("a release");
    assert_eq!(script.text(), "unpublishing; node n-1 rw; node-detached; cluster; ready-to-free");
    assert_eq!(stage.state("a1"), None);
}

#[test]
fn what_the_cluster_attached_it_detaches_whatever_became_of_the_plugin_and_the_node() {
    let ways: [&dyn Fn(&mut Stage); 4] = [
        &|stage| stage.lose("n-1"),
        &|stage| stage.remove_node("n-1"),
        &|stage| stage.plugins = Plugins::default(),
        &|stage| stage.put_node(plugin_node("n-2", |_| {})),
    ];
    for (n, way) in ways.iter().enumerate() {
        let mut stage = of_cluster(AccessMode::SingleNodeWriter);
        stage.holder("a1", "n-1", ClaimMode::Write);
        stage.end("a1");
        way(&mut stage);
        let mut script = Script { attached: AttachedBy::Cluster, ..Script::default() };
        stage.drive("a1", &mut script).expect("a release");
        assert_eq!((script.n("cluster"), script.n("controller "), stage.state("a1")), (1, 0, None), "way {n}");
    }
}

#[test]
fn of_two_on_a_node_the_last_one_has_it_detached() {
    let mut stage = of_cluster(AccessMode::MultiNodeMultiWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    stage.holder("a2", "n-1", ClaimMode::Write);
    let mut n_asked = Vec::new();
    for alloc in ["a1", "a2"] {
        stage.end(alloc);
        let mut script = Script { attached: AttachedBy::Cluster, ..Script::default() };
        stage.drive(alloc, &mut script).expect("a release");
        n_asked.push(script.n("cluster"));
    }
    assert_eq!(n_asked, [0, 1]);
}

#[test]
fn what_need_not_be_attached_is_freed_behind_the_fence() {
    let mut stage = of_cluster(AccessMode::SingleNodeWriter);
    stage.plugins.forgo_attaching("p");
    stage.holder("a1", "n-1", ClaimMode::Write);
    stage.lose("n-1");
    let error = stage.drive("a1", &mut Script::default()).expect_err("it may still write");
    assert!(error.contains("the node may still write"), "{error}");
}

#[test]
fn a_volume_that_would_have_to_be_made_is_told_with_the_remedy() {
    let mut stage = of_cluster(AccessMode::SingleNodeWriter);
    let capacity = Some(CapacityRange { min: "10Gi".to_owned(), max: String::new() });
    let (spec, status) = (stage.spec(), stage.status());
    stage.put_volume(&v1(), CSIVolumeSpec { external_id: String::new(), capacity, ..spec }, status);
    let status = status_of(&stage);
    let found = |kind| status.conditions.iter().find(|condition| condition.r#type == kind).expect("a condition");
    assert!(!status.schedulable);
    assert_eq!(found(Type::Stalled).reason, Reason::CreateFailed);
    let message = &found(Type::Schedulable).message;
    assert!(message.contains("PersistentVolumeClaim") && message.contains("spec.externalID"), "{message}");
}

#[test]
fn how_the_object_stands_says_what_is_done_next() {
    let seen = |change: &dyn Fn(&mut Seen)| {
        let mut seen = Seen::default();
        change(&mut seen);
        Some(seen)
    };
    let going = seen(&|seen| (seen.is_going, seen.is_attached) = (true, true));
    let context = BTreeMap::from([("device".to_owned(), "sdb".to_owned())]);
    let attached = seen(&|seen| (seen.is_attached, seen.context) = (true, context.clone()));
    let failing = seen(&|seen| seen.attach_error = "no such disk".to_owned());
    let stuck = seen(&|seen| (seen.is_going, seen.detach_error) = (true, "busy".to_owned()));
    let fresh = seen(&|_| {});
    let cases: [(&Option<Seen>, Attaching, Detaching); 6] = [
        (&None, Attaching::Create, Detaching::Done),
        (&fresh, Attaching::Wait, Detaching::Delete),
        (&attached, Attaching::Attached(context.clone()), Detaching::Delete),
        (&failing, Attaching::Failing("no such disk".to_owned()), Detaching::Delete),
        (&going, Attaching::Wait, Detaching::Wait),
        (&stuck, Attaching::Wait, Detaching::Failing("busy".to_owned())),
    ];
    for (seen, attach, detach) in cases {
        assert_eq!((attaching(seen.as_ref()), detaching(seen.as_ref())), (attach, detach), "{seen:?}");
    }
}

#[test]
fn an_object_says_all_that_the_attacher_needs_and_no_mount_flags() {
    let mut stage = of_cluster(AccessMode::MultiNodeSingleWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    let spec = CSIVolumeSpec {
        context: BTreeMap::from([("share".to_owned(), "b".to_owned())]),
        mount_options: Some(MountOptions {
            fs_type: "xfs".to_owned(),
            mount_flags: vec!["password=secret".to_owned()],
        }),
        secrets_ref: Some(SecretRef { name: "login".to_owned() }),
        ..stage.spec()
    };
    let status = stage.status();
    let request = wanted(&v1(), &spec, &status, &status.claims[0]);
    assert_eq!((&*request.driver, request.node.as_str(), &*request.external_id), ("p", "n-1", "vol-1"));
    assert_eq!(
        (request.access, &*request.fs_type, request.secret.as_deref()),
        (Access::ManyNodes, "xfs", Some("login"))
    );
    assert_eq!(request.context["share"], "b");
    assert!(!format!("{request:?}").contains("password"), "{request:?}");
    assert!(is_for_somebody(Some(&status), "n-1") && !is_for_somebody(Some(&status), "n-2"));
    assert!(!is_for_somebody(None, "n-1"), "the volume is gone");
}
