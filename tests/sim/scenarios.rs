//! Each scenario passes, the same seed gives the same bytes, and what is wrong with a scenario is said.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/scenarios")
}

pub(crate) fn simulate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_drover")).arg("simulate").args(args).output().expect("drover runs")
}

pub(crate) fn path(name: &str) -> String {
    folder().join(format!("{name}.yaml")).to_string_lossy().into_owned()
}

/// Runs a scenario as it is, and says what failed.
fn passes(name: &str) {
    let output = simulate(&[&path(name)]);
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{text}{errors}");
}

macro_rules! scenarios {
    ($($test:ident: $name:literal),* $(,)?) => {
        $(#[test]
        fn $test() {
            passes($name);
        })*

        const NAMES: &[&str] = &[$($name),*];
    };
}

scenarios! {
    agent_restart: "agent-restart",
    api_outage_long: "api-outage-long",
    api_outage_short: "api-outage-short",
    blocked: "blocked",
    broken_lease_watch: "broken-lease-watch",
    chaos: "chaos",
    clock_step: "clock-step",
    conflicts: "conflicts",
    deployment_api_outage: "deployment-api-outage",
    deployment_auto_promote: "deployment-auto-promote",
    deployment_auto_revert: "deployment-auto-revert",
    deployment_canary_replaced: "deployment-canary-replaced",
    deployment_chaos: "deployment-chaos",
    deployment_deadline: "deployment-deadline",
    deployment_failed_by_a_person: "deployment-failed-by-a-person",
    deployment_finished_group: "deployment-finished-group",
    deployment_in_place: "deployment-in-place",
    deployment_late_watches: "deployment-late-watches",
    deployment_leader_killed: "deployment-leader-killed",
    deployment_leader_killed_in_revert: "deployment-leader-killed-in-revert",
    deployment_manual_health: "deployment-manual-health",
    deployment_many_at_once: "deployment-many-at-once",
    deployment_many_unhealthy: "deployment-many-unhealthy",
    deployment_no_stable_version: "deployment-no-stable-version",
    deployment_node_death: "deployment-node-death",
    deployment_paused: "deployment-paused",
    deployment_paused_node_death: "deployment-paused-node-death",
    deployment_promoted_apart: "deployment-promoted-apart",
    deployment_promoted_while_paused: "deployment-promoted-while-paused",
    deployment_revert_once: "deployment-revert-once",
    deployment_revert_while_due: "deployment-revert-while-due",
    deployment_scaled: "deployment-scaled",
    deployment_scaled_down: "deployment-scaled-down",
    deployment_stopped: "deployment-stopped",
    deployment_two_leaders: "deployment-two-leaders",
    deployment_unplaceable_group: "deployment-unplaceable-group",
    deployment_updated_in_the_middle: "deployment-updated-in-the-middle",
    drain: "drain",
    dispatch: "dispatch",
    drain_canceled: "drain-canceled",
    drain_deadline: "drain-deadline",
    drain_force: "drain-force",
    drain_ignore_system_jobs: "drain-ignore-system-jobs",
    drain_leader_crash: "drain-leader-crash",
    failing_task: "failing-task",
    flapping_node: "flapping-node",
    leader_crash: "leader-crash",
    namespace_deleted: "namespace-deleted",
    node_lost_while_starting: "node-lost-while-starting",
    node_death: "node-death",
    partition_best_score: "partition-best-score",
    partition_keep_original: "partition-keep-original",
    partition_keep_replacement: "partition-keep-replacement",
    partition_longest_running: "partition-longest-running",
    partition_lost: "partition-lost",
    partition_no_replace: "partition-no-replace",
    partition_stop_on_client: "partition-stop-on-client",
    periodic_daylight: "periodic-daylight",
    periodic_missed: "periodic-missed",
    periodic_overlap: "periodic-overlap",
    preemption: "preemption",
    rack_failure: "rack-failure",
    rolling_update: "rolling-update",
    scale_during_outage: "scale-during-outage",
    services: "services",
    stop_and_purge: "stop-and-purge",
    switch_failure: "switch-failure",
    system_job: "system-job",
    two_leaders: "two-leaders",
    volume_agent_restart: "volume-agent-restart",
    volume_api_outage: "volume-api-outage",
    volume_conflicts: "volume-conflicts",
    volume_deleted_in_use: "volume-deleted-in-use",
    volume_drain: "volume-drain",
    volume_fence: "volume-fence",
    volume_forced: "volume-forced",
    volume_hand_over: "volume-hand-over",
    volume_leader_crash: "volume-leader-crash",
    volume_missing: "volume-missing",
    volume_node_death: "volume-node-death",
    volume_node_deleted: "volume-node-deleted",
    volume_per_allocation: "volume-per-allocation",
    volume_plugin_faults: "volume-plugin-faults",
    volume_provider_faults: "volume-provider-faults",
    volume_shared_node_death: "volume-shared-node-death",
    volume_two_jobs: "volume-two-jobs",
    volume_two_leaders: "volume-two-leaders",
}

#[test]
fn every_scenario_is_a_test() {
    let files = std::fs::read_dir(folder()).expect("the folder of scenarios");
    let mut found: Vec<String> = files
        .map(|file| file.expect("a file").path().file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    found.sort();
    let mut listed: Vec<&str> = NAMES.to_vec();
    listed.sort_unstable();
    assert_eq!(found, listed);
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_others() {
    let run = |seed: &str| simulate(&[&path("rolling-update"), "--seed", seed, "-o", "json"]).stdout;
    let first = run("7");
    assert!(first == run("7"), "two runs of one seed differ");
    assert!(first != run("8"), "the seed changes nothing");
    let json: Value = serde_json::from_slice(&first).expect("JSON");
    assert_eq!((json["verdict"].as_str(), json["virtualSeconds"].as_f64()), (Some("pass"), Some(360.0)));
    let created = |kind: &str| {
        let all = json["timeline"].as_array().into_iter().flatten();
        all.filter(|entry| entry["kind"] == kind && entry["change"] == "created").count()
    };
    assert_eq!((created("Job"), created("Allocation"), created("ClientNode")), (1, 12, 4));
}

/// A new leader whose list of jobs was stale recorded the old spec as a new version, and the newest spec as one more.
#[test]
fn a_stale_list_of_jobs_makes_no_version() {
    let output = simulate(&[&path("chaos"), "--seed", "4095"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Each failed allocation is replaced 6.007 s after the one before was placed: at 66.01 s, 72.02 s, 78.03 s and so on.
/// The deadline comes long before, at the same millisecond as, and long after each of them.
#[test]
fn a_revert_has_a_deployment_in_each_order_of_the_deadline_and_the_replacement() {
    let text = std::fs::read_to_string(path("deployment-revert-while-due")).expect("a scenario");
    let deadline = "progressDeadline: 12s";
    assert!(text.contains(deadline), "{text}");
    let apart = (10_500..19_000).step_by(500);
    let close = (12_000..12_050).step_by(2).chain((18_000..18_050).step_by(2));
    for milliseconds in apart.chain(close) {
        let text = text.replace(deadline, &format!("progressDeadline: {milliseconds}ms"));
        let (code, output) = run_text(&text);
        assert_eq!(code, Some(0), "with a deadline of {milliseconds} ms: {output}");
    }
}

/// A writer is cut off for twenty minutes, and meanwhile the collection of claims asks for another look at its volume.
#[test]
fn the_collection_of_claims_is_no_unrest() {
    let mut text = std::fs::read_to_string(path("volume-fence")).expect("a scenario");
    for (short, long) in [("duration: 15m", "duration: 40m"), ("at: 6m", "at: 25m"), ("at: 10m", "at: 35m")] {
        assert!(text.contains(short), "{text}");
        text = text.replace(short, long);
    }
    let (code, text) = run_text(&text);
    assert_eq!(code, Some(0), "{text}");
}

/// `drover simulate --twice examples/scenarios/*.yaml` asks it of all.
#[test]
fn a_second_run_of_a_seed_gives_the_same_bytes_under_faults_too() {
    let files =
        ["chaos", "two-leaders", "partition-keep-original", "drain-deadline", "deployment-auto-revert"].map(path);
    let mut args = vec!["--twice"];
    args.extend(files.iter().map(String::as_str));
    let output = simulate(&args);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(text.matches("pass ").count(), files.len(), "{text}");
}

/// A person answers for a node that is only cut off, and its writer goes on: two write to one volume.
#[test]
fn a_second_writer_of_a_volume_is_found() {
    let dir = tempfile::tempdir().expect("a directory");
    let text = std::fs::read_to_string(path("volume-forced")).expect("a scenario");
    let file = dir.path().join("forced.yaml");
    std::fs::write(&file, text.replace("action: poweroff", "action: partition")).expect("a file");
    let output = simulate(&[&file.to_string_lossy()]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("I2: volume vol-v1 is published on n-2 and on n-0"), "{text}");
}

/// What a plugin does not do, or does without saying so, is tried with each of its calls; no seed meets all of them.
#[test]
fn every_call_of_a_plugin_is_made_to_fail() {
    let wanted = [
        "ControllerExpandVolume",
        "ControllerPublishVolume",
        "ControllerUnpublishVolume",
        "CreateVolume",
        "DeleteVolume",
        "NodeExpandVolume",
        "NodePublishVolume",
        "NodeStageVolume",
        "NodeUnpublishVolume",
        "NodeUnstageVolume",
        "ValidateVolumeCapabilities",
    ];
    let mut faulted = BTreeSet::new();
    for seed in 1..=20 {
        let files = ["volume-plugin-faults", "volume-provider-faults"].map(path);
        let output = simulate(&[&files[0], &files[1], "--seed", &seed.to_string(), "-o", "json"]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
        let runs = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
        let calls = runs.flat_map(|run| run.expect("JSON")["pluginCalls"].as_array().cloned().expect("calls"));
        let failed = calls.filter(|call| call["faults"].as_u64() > Some(0));
        faulted.extend(failed.map(|call| call["call"].as_str().expect("a name").to_owned()));
        if faulted.len() == wanted.len() {
            break;
        }
    }
    assert_eq!(faulted, wanted.map(str::to_owned).into());
}

/// The controller crashes after each of its writes, and at each moment of a call to a storage plugin, in turn, and
/// every run ends as the one without a crash. The same is asked of all scenarios of `crashed.txt` by
/// `drover simulate --crash-at-write all --crash-at-call all $(cat tests/sim/crashed.txt)`.
#[test]
fn a_crash_between_any_two_writes_and_calls_changes_no_end() {
    for name in ["drain-force", "stop-and-purge", "volume-per-allocation"] {
        let output = simulate(&[&path(name), "--crash-at-write", "all", "--crash-at-call", "all"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(text.contains("crashes end as the run without one"), "{text}");
    }
}

#[test]
fn several_scenarios_answer_in_their_order_and_a_typo_in_the_last_is_said_first() {
    let (slow, quick) = (path("chaos"), path("leader-crash"));
    let output = simulate(&[&slow, &quick]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let at = |name: &str| text.find(&format!("pass  {name} ")).unwrap_or_else(|| panic!("{name}: {text}"));
    assert!(at("chaos") < at("leader-crash"), "{text}");
    let output = simulate(&[&slow, "Cargo.toml"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(255), 0));
}

/// Runs this text as a scenario.
fn run_text(text: &str) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("scenario.yaml");
    std::fs::write(&file, text).expect("a file");
    let output = simulate(&[&file.to_string_lossy()]);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

const HEAD: &str = "apiVersion: drover.dev/v1alpha1\nkind: Scenario\nmetadata: {name: t}\nspec:\n  duration: 1m\n";

#[test]
fn a_typo_is_an_error_with_line_key_and_the_closest_one() {
    let (code, text) = run_text(&format!("{HEAD}  stepps: []\n"));
    assert_eq!(code, Some(255), "{text}");
    assert!(text.contains("line 6") && text.contains("did you mean `steps` instead of `stepps`?"), "{text}");
}

#[test]
fn a_step_on_what_does_not_exist_fails_by_name() {
    for (step, wanted) in [
        ("node: {names: [n-7], action: partition}", "the scenario has no node \"n-7\"; did you mean \"n-1\"?"),
        ("alloc: {job: web, action: fail}", "no allocation is there for"),
        ("job: {name: web, action: stop}", "jobs \"web\" not found"),
        ("deployment: {job: web, action: promote}", "job default/web has no deployment"),
        ("expect: [{node: {name: n-1, phase: down}}]", "node n-1: phase is \"ready\", it should be \"down\""),
    ] {
        let (code, text) = run_text(&format!("{HEAD}  nodes: [{{name: n-1}}]\n  steps:\n  - {{at: 30s, {step}}}\n"));
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("at 30s: spec.steps[0]") && text.contains(wanted), "{text}");
    }
}

#[test]
fn a_manifest_with_an_unknown_field_is_refused_as_the_api_server_does() {
    let job = "{apiVersion: drover.dev/v1alpha1, kind: Job, metadata: {name: j}, spec: {groups: [{name: g, cuont: 2, tasks: [{name: t, driver: mock}]}]}}";
    let (code, text) = run_text(&format!("{HEAD}  steps:\n  - {{at: 1s, apply: [{job}]}}\n"));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("unknown field \"spec.groups[0].cuont\"; did you mean \"count\"?"), "{text}");
    let (code, text) = run_text(&format!("{HEAD}  steps:\n  - {{at: 1s, refused: cuont, apply: [{job}]}}\n"));
    assert_eq!(code, Some(0), "{text}");
}
