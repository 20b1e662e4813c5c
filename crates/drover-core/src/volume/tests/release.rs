//! The release of claims (section 5), driven to its end with a plugin that answers by a script.

use drover_api::allocation::DesiredStatus;
use expect_test::{Expect, expect};

use super::*;
use crate::scheduler::tests::spec as job_spec;
use crate::volume::columns::with_columns;
use crate::volume::plugin_lock::PluginLock;

/// An ended writer `a1` on `n-1`.
fn ended(mode: AccessMode) -> Stage {
    let mut stage = Stage::new(mode);
    stage.holder("a1", "n-1", ClaimMode::Write);
    stage.end("a1");
    stage
}

/// What is done for a claim, with a script; its calls, and the error that ends it.
fn check(stage: &mut Stage, alloc: &str, mut script: Script, wanted: &Expect) {
    let error = stage.drive(alloc, &mut script).err();
    let end = stage.state(alloc).map_or("freed".to_owned(), |state| state.to_string());
    let error = error.map(|error| format!("\n{error}")).unwrap_or_default();
    wanted.assert_eq(&format!("{} -> {end}{error}", script.text()));
}

fn node_says(answer: NodeAnswer) -> Script {
    Script { node: [answer].into(), ..Script::default() }
}

fn controller_says(answers: impl Into<VecDeque<ControllerAnswer>>) -> Script {
    Script { controller: answers.into(), ..Script::default() }
}

/// Makes the plugin one that never had a controller.
fn without_controllers(stage: &mut Stage) {
    stage.plugins = Plugins::default();
    for name in ["n-1", "n-2"] {
        stage.put_node(plugin_node(name, |info| (info.controller, info.requires_controller_plugin) = (false, false)));
    }
}

/// V-028
#[test]
fn a_release_goes_over_the_node_and_the_controller() {
    let mut stage = ended(AccessMode::SingleNodeWriter);
    let script = stage.release("a1");
    assert_eq!(
        script.text(),
        "unpublishing; node n-1 rw; node-detached; controller n-1 vol-1 off i-n-1; ready-to-free"
    );
    assert_eq!((script.calls(), stage.state("a1")), ((1, 1), None));
}

/// V-029
#[test]
fn what_the_node_cannot_unmount_is_tried_again_by_the_next_look() {
    let mut stage = ended(AccessMode::SingleNodeWriter);
    check(
        &mut stage,
        "a1",
        node_says(NodeAnswer::Failed("target is busy".to_owned())),
        &expect![[r"
            unpublishing; node n-1 rw -> unpublishing
            could not detach from node n-1: target is busy; volume shop/v1 stays claimed by allocation a1 and is tried again; look at the plugin's allocation on n-1"]],
    );
    assert_eq!(stage.release("a1").calls(), (1, 1));
    assert_eq!(stage.state("a1"), None);
}

/// V-030
#[test]
fn what_the_controller_cannot_detach_goes_on_there() {
    let mut stage = ended(AccessMode::SingleNodeWriter);
    check(
        &mut stage,
        "a1",
        controller_says([ControllerAnswer::Failed("volume is busy".to_owned())]),
        &expect![[r"
            unpublishing; node n-1 rw; node-detached; controller n-1 vol-1 off i-n-1 -> node-detached
            could not detach from controller: the controller on n-1 answered for volume shop/v1 on node n-1: volume is busy; it is tried again; look at the plugin's allocation on n-1"]],
    );
    assert_eq!(stage.release("a1").calls(), (0, 1));
    assert_eq!(stage.state("a1"), None);
}

/// V-031
#[test]
fn what_is_off_its_controller_is_freed_at_once() {
    let mut stage = ended(AccessMode::SingleNodeWriter);
    stage.change_status(|status| status.claims[0].state = ClaimState::ControllerDetached);
    let script = stage.release("a1");
    assert_eq!((script.calls(), script.text()), ((0, 0), "ready-to-free".to_owned()));
}

/// V-032
#[test]
fn a_reader_is_unmounted_as_a_reader() {
    let mut stage = Stage::new(AccessMode::MultiNodeSingleWriter);
    stage.holder("a1", "n-1", ClaimMode::Read);
    stage.end("a1");
    assert_eq!(stage.release("a1").n("node n-1 ro"), 1);
}

/// V-033
#[test]
fn a_release_never_changes_what_the_claim_allowed() {
    for mode in [ClaimMode::Read, ClaimMode::Write] {
        let mut stage = Stage::new(AccessMode::MultiNodeMultiWriter);
        stage.holder("a1", "n-1", mode);
        stage.end("a1");
        let (mut script, mut tried) = (Script::default(), Vec::new());
        while stage.step("a1", &mut script, &mut tried).expect("a step") {
            assert!(stage.held("a1").is_none_or(|claim| claim.mode == mode), "{}", script.text());
        }
        assert_eq!(stage.state("a1"), None);
    }
}

/// V-034
#[test]
fn a_node_that_is_down_is_not_asked_and_may_still_write() {
    for mode in [AccessMode::SingleNodeWriter, AccessMode::MultiNodeMultiWriter] {
        let mut stage = Stage::new(mode);
        stage.holder("a1", "n-1", ClaimMode::Write);
        stage.lose("n-1");
        let script = stage.release("a1");
        assert_eq!(
            script.text(),
            "unpublishing; node-detached; controller n-2 vol-1 off i-n-1; ready-to-free",
            "{mode}"
        );
    }
    let lost = |mode| {
        let mut stage = Stage::new(mode);
        without_controllers(&mut stage);
        stage.holder("a1", "n-1", ClaimMode::Write);
        stage.lose("n-1");
        stage
    };
    let mut shared = lost(AccessMode::MultiNodeMultiWriter);
    assert_eq!(shared.release("a1").text(), "unpublishing; node-detached; ready-to-free");
    let mut stage = lost(AccessMode::SingleNodeWriter);
    let fenced = expect![[r"
        unpublishing; node-detached -> node-detached
        the node may still write: volume shop/v1 of allocation a1 stays claimed, because node n-1 is disconnected and has not reported the allocation's end; bring the node back, delete it (kubectl delete cnode n-1), or force the release"]];
    check(&mut stage, "a1", Script::default(), &fenced);
    let freed_by = |end: &dyn Fn(&mut Stage, &mut Script)| {
        let mut stage = lost(AccessMode::SingleNodeWriter);
        let (mut script, mut tried) = (Script::default(), Vec::new());
        while stage.step("a1", &mut script, &mut tried) == Ok(true) {}
        end(&mut stage, &mut script);
        stage.drive("a1", &mut script).map(|()| stage.state("a1"))
    };
    assert_eq!(freed_by(&|stage, _| stage.remove_node("n-1")), Ok(None), "the node is deleted");
    assert_eq!(freed_by(&|_, script| script.force = Force::ByOperator), Ok(None), "a person forces it");
    assert_eq!(
        freed_by(&|stage, _| stage.change_alloc("a1", |alloc| alloc.has_ended = true)),
        Ok(None),
        "its end is told"
    );
    assert_eq!(freed_by(&|_, script| script.unmount = Unmount::Reported), Ok(None), "it is unmounted");
    let gone = |stage: &mut Stage| drop(stage.world.view.remove_alloc(&AllocKey::new("shop", "a1")));
    let back = |stage: &mut Stage| stage.set_phase("n-1", NodePhase::Ready);
    assert!(freed_by(&|stage, _| gone(stage)).is_err(), "that it is forgotten says nothing of its node");
    let not_yet = freed_by(&|stage, _| {
        gone(stage);
        stage.set_phase("n-1", NodePhase::Initializing);
    });
    assert!(not_yet.is_err(), "its agent is back, and has not said what runs there");
    assert!(freed_by(&|stage, _| back(stage)).is_err(), "its tasks may run until the agent has ended them");
    let back_and_over = |stage: &mut Stage, _: &mut Script| {
        back(stage);
        gone(stage);
    };
    assert_eq!(freed_by(&back_and_over), Ok(None), "the node is back, and the allocation is over");
}

/// V-035
#[test]
fn a_node_that_is_gone_is_detached_where_its_id_is_known() {
    let mut stage = ended(AccessMode::SingleNodeWriter);
    stage.remove_node("n-1");
    let script = stage.release("a1");
    assert_eq!(script.text(), "unpublishing; node-detached; controller n-2 vol-1 off i-n-1; ready-to-free");
    assert_eq!(script.calls(), (0, 1));
}

/// V-036
#[test]
fn a_node_that_is_gone_without_a_trace_is_not_detached() {
    let mut stage = ended(AccessMode::SingleNodeWriter);
    stage.change_status(|status| status.claims[0].external_node_id.clear());
    stage.remove_node("n-1");
    let script = stage.release("a1");
    assert_eq!((script.calls(), stage.state("a1")), ((0, 0), None));
}

/// V-037
#[test]
fn a_node_without_the_plugin_has_to_say_how_the_provider_calls_it() {
    let mut stage = ended(AccessMode::SingleNodeWriter);
    stage.change_status(|status| {
        status.claims[0].external_node_id.clear();
        status.claims[0].state = ClaimState::NodeDetached;
    });
    stage.put_node(node("n-1"));
    check(
        &mut stage,
        "a1",
        Script::default(),
        &expect![[r"
             -> node-detached
            could not detach from controller: missing external node id of node n-1 for volume shop/v1; run plugin p on n-1 again, or delete the node"]],
    );
    stage.put_node(plugin_node("n-1", |_| {}));
    assert_eq!(stage.release("a1").text(), "controller n-1 vol-1 off i-n-1; ready-to-free");
}

#[test]
fn another_claim_of_the_node_knows_its_external_id_too() {
    let mut stage = Stage::new(AccessMode::MultiNodeMultiWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    stage.holder("a2", "n-1", ClaimMode::Write);
    stage.change_status(|status| status.claims[0].external_node_id.clear());
    for alloc in ["a1", "a2"] {
        stage.end(alloc);
    }
    stage.remove_node("n-1");
    assert_eq!(stage.release("a1").n("controller n-2 vol-1 off i-n-1"), 1);
}

/// V-038
#[test]
fn a_plugin_without_a_controller_needs_none() {
    let mut stage = ended(AccessMode::SingleNodeWriter);
    without_controllers(&mut stage);
    let script = stage.release("a1");
    assert_eq!((script.calls(), stage.state("a1")), ((1, 0), None));
}

/// V-039
#[test]
fn a_controller_that_attaches_nothing_is_not_asked() {
    let mut stage = ended(AccessMode::SingleNodeWriter);
    for name in ["n-1", "n-2"] {
        stage.put_node(plugin_node(name, |info| info.capabilities = vec!["CREATE_DELETE_VOLUME".to_owned()]));
    }
    let script = stage.release("a1");
    assert_eq!((script.calls(), stage.state("a1")), ((1, 0), None));
}

/// V-040
#[test]
fn a_plugin_that_vanished_is_waited_for() {
    let mut stage = ended(AccessMode::SingleNodeWriter);
    let plugins = std::mem::take(&mut stage.plugins);
    for _ in 0..2 {
        stage.change_status(|status| *status = refreshed(status, None));
        let mut script = Script::default();
        let error = stage.drive("a1", &mut script).expect_err("no plugin");
        expect!["could not detach from controller: plugin p of volume shop/v1 on node n-1 is unknown, and the volume needs its controller; run the plugin's job again, or deregister the volume by force"]
            .assert_eq(&error);
        assert_eq!((script.calls().1, stage.state("a1")), (0, Some(ClaimState::NodeDetached)));
    }
    stage.plugins = plugins;
    let script = stage.release("a1");
    assert_eq!((script.calls(), stage.state("a1")), ((0, 1), None));
}

/// V-041
#[test]
fn the_last_one_on_a_node_is_detached_for_all() {
    let mut stage = ended(AccessMode::MultiNodeMultiWriter);
    stage.holder("a2", "n-1", ClaimMode::Read);
    let script = stage.release("a1");
    assert_eq!((script.calls(), stage.state("a1")), ((1, 0), None));
    stage.end("a2");
    let script = stage.release("a2");
    assert_eq!((script.calls(), stage.state("a2")), ((1, 1), None));
}

/// V-042
#[test]
fn one_on_another_node_does_not_keep_the_volume_attached_here() {
    let mut stage = ended(AccessMode::MultiNodeMultiWriter);
    stage.holder("a2", "n-2", ClaimMode::Write);
    assert_eq!(stage.release("a1").text().matches("controller n-1 vol-1 off i-n-1").count(), 1);
    assert!(stage.state("a2") == Some(ClaimState::Taken));
}

/// V-043
#[test]
fn one_that_has_ended_does_not_keep_the_volume_attached() {
    for end in [ClientStatus::Complete, ClientStatus::Failed, ClientStatus::Lost] {
        let mut stage = ended(AccessMode::MultiNodeMultiWriter);
        stage.holder("a2", "n-1", ClaimMode::Write);
        stage.change_alloc("a2", |alloc| (alloc.client, alloc.has_ended) = (end, true));
        assert_eq!(stage.release("a1").calls(), (1, 1), "{end}");
    }
}

/// Its node cannot unmount it yet, and the volume is detached when it has.
#[test]
fn one_that_has_ended_and_is_mounted_still_keeps_the_volume_attached() {
    let mut stage = ended(AccessMode::MultiNodeMultiWriter);
    stage.holder("a2", "n-1", ClaimMode::Write);
    stage.end("a2");
    assert_eq!(stage.release("a1").calls(), (1, 0));
    assert_eq!(stage.release("a2").calls(), (1, 1));
}

#[test]
fn one_that_is_only_to_stop_may_still_write_and_keeps_the_volume_attached() {
    let mut stage = ended(AccessMode::MultiNodeMultiWriter);
    stage.holder("a2", "n-1", ClaimMode::Write);
    stage.change_alloc("a2", |alloc| alloc.desired = DesiredStatus::Stop);
    assert_eq!(stage.release("a1").calls(), (1, 0));
    stage.end("a2");
    assert_eq!(stage.release("a2").calls(), (1, 1));
}

/// V-044
#[test]
fn a_volume_is_in_use_until_the_controller_has_detached_it() {
    let mut spec = job_spec(1);
    spec["groups"][0]["volumes"] = serde_json::json!([{ "name": "data", "type": "csi", "source": "v1",
        "accessMode": "single-node-writer", "attachmentMode": "file-system" }]);
    let mut stage = ended(AccessMode::SingleNodeWriter);
    stage.change_alloc("a1", |alloc| alloc.job = AllocKey::new("shop", "other"));
    let new_job = World::new(&spec).job;
    let uid = new_job.uid.clone();
    stage.world.view.put_version(new_job.key.clone(), uid, 1, Arc::clone(&new_job.definition));
    stage.world.view.put_job(new_job);
    let waits = |stage: &Stage| {
        let plan = stage.world.plan();
        let failed = plan.failed.get("web").map(|failed| failed.constraint_filtered.contains_key("csiInUse:v1"));
        (failed, plan.waits_for.missing.contains("csi-volume:shop:v1"), plan.placements.len())
    };
    let (mut script, mut tried) = (Script::default(), Vec::new());
    while stage.state("a1").is_some() {
        assert_eq!(waits(&stage), (Some(true), true, 0), "{}", script.text());
        assert_ne!(with_columns(&stage.status()).phase.as_str(), "available", "{}", script.text());
        assert!(stage.status().access_mode.is_some());
        stage.step("a1", &mut script, &mut tried).expect("a step");
    }
    assert_eq!(script.calls(), (1, 1));
    assert_eq!(with_columns(&stage.status()).phase.as_str(), "available");
    assert_eq!(waits(&stage), (None, false, 1));
}

/// V-045
#[test]
fn what_the_controller_does_not_find_is_detached() {
    let mut stage = ended(AccessMode::SingleNodeWriter);
    let mut script = controller_says([ControllerAnswer::NotFound]);
    assert_eq!(stage.drive("a1", &mut script), Ok(()));
    assert_eq!((script.calls(), stage.state("a1")), ((1, 1), None));
}

#[test]
fn an_agent_that_does_not_know_the_node_has_nothing_mounted() {
    let mut stage = ended(AccessMode::SingleNodeWriter);
    let mut script = node_says(NodeAnswer::UnknownNode);
    assert_eq!(stage.drive("a1", &mut script), Ok(()));
    assert_eq!((script.calls(), stage.state("a1")), ((1, 1), None));
}

/// V-046
#[test]
fn two_releases_of_one_claim_free_it_once() {
    // Every order in which two of them take their steps.
    for order in 0_u32..1 << 10 {
        let mut stage = ended(AccessMode::SingleNodeWriter);
        let (mut one, mut other) = (Script::default(), Script::default());
        let mut tried = Vec::new();
        for turn in 0..10 {
            let script = if order & (1 << turn) == 0 { &mut one } else { &mut other };
            assert!(stage.step("a1", script, &mut tried).is_ok());
        }
        assert_eq!((stage.drive("a1", &mut one), stage.drive("a1", &mut other)), (Ok(()), Ok(())));
        assert_eq!(stage.state("a1"), None);
        assert_eq!(one.n("ready-to-free") + other.n("ready-to-free"), 1, "{order:b}");
    }
}

/// V-047
#[test]
fn one_controller_call_of_a_plugin_is_under_way_at_a_time() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    let keys = ["v1", "v2", "v3"].map(|id| ObjectKey::new("shop", id));
    let (spec, status) = (stage.spec(), stage.status());
    for (n, key) in keys.iter().enumerate() {
        stage.put_volume(key, spec.clone(), status.clone());
        stage.volume = key.clone();
        stage.holder(&format!("a{n}"), "n-1", ClaimMode::Write);
        stage.end(&format!("a{n}"));
    }
    let callers: Vec<_> = keys.iter().enumerate().map(|(n, key)| (key.clone(), format!("a{n}"))).collect();
    let mut turns = PluginLock::default();
    let mut under_way = Vec::new();
    for (key, alloc) in &callers {
        stage.volume = key.clone();
        let (mut script, mut tried) = (Script::default(), Vec::new());
        while stage.state(alloc) != Some(ClaimState::NodeDetached) {
            stage.step(alloc, &mut script, &mut tried).expect("a step");
        }
        if turns.ask("p", &(key.clone(), alloc.clone())) {
            under_way.push((key.clone(), alloc.clone()));
        }
    }
    let mut called = Vec::new();
    while let Some(caller) = under_way.pop() {
        assert_eq!(under_way, [], "one at a time");
        stage.volume = caller.0.clone();
        assert_eq!(stage.release(&caller.1).calls(), (0, 1));
        under_way.extend(turns.finish("p", &caller));
        called.push(caller);
    }
    assert_eq!(called, callers);
}

/// V-048
#[test]
fn the_next_controller_is_asked_where_one_cannot() {
    for answer in [ControllerAnswer::Retryable("starting".to_owned()), ControllerAnswer::UnknownNode] {
        let mut stage = ended(AccessMode::SingleNodeWriter);
        let mut script = controller_says([answer]);
        assert_eq!(stage.drive("a1", &mut script), Ok(()));
        let asked: Vec<&String> = script.log.iter().filter(|line| line.starts_with("controller")).collect();
        assert_eq!(asked, ["controller n-1 vol-1 off i-n-1", "controller n-2 vol-1 off i-n-1"]);
        assert_eq!(stage.state("a1"), None);
    }
}

#[test]
fn where_no_controller_can_be_asked_each_says_why() {
    let mut stage = ended(AccessMode::SingleNodeWriter);
    stage.put_node(plugin_node("n-2", |info| info.healthy = false));
    stage.put_node(plugin_node("n-3", |_| {}));
    stage.set_phase("n-3", NodePhase::Disconnected);
    check(
        &mut stage,
        "a1",
        controller_says([ControllerAnswer::Retryable("starting".to_owned())]),
        &expect![[r"
            unpublishing; node n-1 rw; node-detached; controller n-1 vol-1 off i-n-1 -> node-detached
            could not detach from controller: no controller of plugin p can be asked for volume shop/v1 on node n-1 (n-1: starting, n-2: its controller is unhealthy, n-3: the node is disconnected); make one healthy on a ready node"]],
    );
    for name in ["n-1", "n-2", "n-3"] {
        stage.put_node(plugin_node(name, |info| info.controller = false));
    }
    let error = stage.drive("a1", &mut Script::default()).expect_err("no controller");
    assert!(error.contains("(none is known)"), "{error}");
}

/// V-049
#[test]
fn what_the_agent_has_unmounted_is_not_unmounted_again() {
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    stage.holder("a1", "n-1", ClaimMode::Write);
    let mut script = Script { unmount: Unmount::Reported, ..Script::default() };
    assert_eq!(stage.drive("a1", &mut script), Ok(()));
    assert_eq!((script.calls(), stage.state("a1")), ((0, 1), None));
}
