//! Jobs in Nomad's JSON that were written by hand, and what they become; and jobs that become Nomad's JSON and HCL.

use drover_api::job::{Dispatch, JobPhase, Scale};
use drover_api::{Job, JobStatus, label};
use drover_core::definition::Definition;
use drover_core::validate;
use expect_test::expect_file;
use serde_json::{Value, json};

use super::round_trip::{check, read};
use crate::{Inputs, hcl, is_wire, manifests, wire_job, wire_manifest};

fn of_hcl(text: &str) -> Job {
    let mut found = manifests("job.hcl", text, &Inputs::default()).unwrap_or_else(|faults| panic!("{faults:#?}"));
    read(&found.remove(0), 0)
}

fn manifest(text: &str) -> Value {
    wire_manifest("job.json", text).unwrap_or_else(|faults| panic!("{faults:#?}"))
}

#[test]
fn a_job_in_nomads_json_is_that_of_its_hcl() {
    let written = of_hcl(include_str!("../../testdata/web.nomad.hcl"));
    let found = manifest(include_str!("../../testdata/web.nomad.json"));
    assert_eq!(found["metadata"], json!({ "name": "web-front-5bb8e40a", "namespace": "shop" }));
    check(&written, &read(&found, 0), 0, "");
}

/// With each field that is null or zero, and each that says how the job is.
#[test]
fn a_job_as_nomads_api_returns_it_is_one_that_drover_takes() {
    let found = manifest(include_str!("../../testdata/read.nomad.json"));
    expect_file!["../../testdata/read.nomad.yaml"].assert_eq(&serde_saphyr::to_string(&found).unwrap());
    let shape = validate::shape("Job", &found);
    assert!(shape.is_empty(), "{shape:#?}");
    let job = read(&found, 0);
    let definition = Definition::new(&job.spec, "cache");
    let violations = validate::violations(&definition);
    assert!(violations.is_empty(), "{violations:#?}");
    let warnings = validate::warnings(&definition);
    assert!(warnings.is_empty(), "{warnings:#?}");
}

/// What `nomad job run` sends of `update { min_healthy_time = "0s" }`; servers send a block of zeros where there is
/// none.
#[test]
fn zeros_that_the_author_wrote_are_kept_and_those_that_a_server_filled_in_are_not() {
    let update = |update: Value| {
        let task = json!({ "Name": "t", "Driver": "exec", "Config": { "command": "/bin/true" } });
        let groups = json!([{ "Name": "g", "Tasks": [task] }]);
        manifest(&json!({ "Job": { "ID": "web", "Update": update, "TaskGroups": groups } }).to_string())["spec"]["update"].clone()
    };
    let sent = json!({
        "Stagger": null, "MaxParallel": null, "HealthCheck": null, "MinHealthyTime": 0, "HealthyDeadline": null,
        "ProgressDeadline": null, "Canary": null, "AutoRevert": null, "AutoPromote": null,
    });
    assert_eq!(update(sent), json!({ "minHealthyTime": "0s" }));
    let filled = json!({
        "Stagger": 0, "MaxParallel": 0, "HealthCheck": "", "MinHealthyTime": 0, "HealthyDeadline": 0,
        "ProgressDeadline": 0, "Canary": 0, "AutoRevert": false, "AutoPromote": false,
    });
    assert_eq!(update(filled), Value::Null);
    assert_eq!(update(json!({ "Stagger": 30_000_000_000_i64, "MaxParallel": null })), Value::Null);
    assert_eq!(update(Value::Null), Value::Null);
}

/// What `nomad job run` sends of `connect { sidecar_service {} }`; servers send null, or nothing but zeros, where there
/// is none.
#[test]
fn what_is_not_carried_over_is_refused_though_nothing_stands_in_it() {
    let of = |connect: Value| {
        let service = json!({ "Name": "web", "Provider": "nomad", "PortLabel": "http", "Connect": connect });
        let task = json!({ "Name": "t", "Driver": "exec", "Config": { "command": "/bin/true" } });
        let group = json!({ "Name": "g", "Services": [service], "Tasks": [task] });
        let job = json!({ "Job": { "ID": "web", "TaskGroups": [group] } }).to_string();
        wire_manifest("job.json", &job).map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let sidecar = json!({ "Tags": null, "Port": "", "Proxy": null, "DisableDefaultTCPCheck": false, "Meta": null });
    let sent = json!({ "Native": false, "Gateway": null, "SidecarService": sidecar, "SidecarTask": null });
    let faults = of(sent).unwrap_err();
    assert!(faults.len() == 1 && faults[0].contains("TaskGroups[0].Services[0].Connect"), "{faults:?}");
    for none in [Value::Null, json!({ "Native": false, "Gateway": null, "SidecarService": null })] {
        assert!(of(none.clone()).is_ok(), "{none}");
    }
}

#[test]
fn a_block_of_settings_is_the_map_that_nomad_makes_of_it() {
    let job = of_hcl(
        r#"
        job "web" {
          group "g" {
            scaling {
              max = 3
              policy {
                cooldown = "1m"
                check "cpu" {
                  strategy "target-value" { target = 70 }
                }
                check "memory" {}
              }
            }
            task "t" {
              driver = "exec"
              config { command = "/bin/true" }
            }
          }
        }"#,
    );
    let policy = &job.spec.groups[0].scaling.as_ref().unwrap().policy;
    let cpu = json!([{ "strategy": [{ "target-value": [{ "target": 70 }] }] }]);
    assert_eq!(json!(policy), json!({ "cooldown": "1m", "check": [{ "cpu": cpu }, { "memory": [{}] }] }));
}

#[test]
fn every_stanza_is_in_nomads_json_and_in_hcl() {
    let job = of_hcl(include_str!("../../testdata/every.nomad.hcl"));
    let wire = wire_job(&job);
    expect_file!["../../testdata/every.wire.json"].assert_eq(&format!("{wire:#}\n"));
    check(&job, &read(&manifest(&wire.to_string()), 0), 0, "");
    let text = hcl(&job);
    expect_file!["../../testdata/every.written.hcl"].assert_eq(&text);
    check(&job, &of_hcl(&text), 0, &text);
}

#[test]
fn hcl_is_written_as_people_write_it() {
    let job = of_hcl(include_str!("../../testdata/web.nomad.hcl"));
    expect_file!["../../testdata/web.written.hcl"].assert_eq(&hcl(&job));
}

#[test]
fn a_job_in_nomads_json_says_how_it_is() {
    let mut job =
        of_hcl("job \"Web_1\" {\n  group \"g\" {\n    task \"t\" {\n      driver = \"exec\"\n    }\n  }\n}\n");
    job.spec.stop = true;
    job.spec.scale = Some(Scale { group: String::new(), count: Some(7) });
    job.metadata.namespace = Some("shop".to_owned());
    job.metadata.generation = Some(4);
    job.metadata.resource_version = Some("991".to_owned());
    job.metadata.creation_timestamp = serde_json::from_value(json!("2026-01-01T00:00:10Z")).unwrap();
    job.status = Some(JobStatus { phase: JobPhase::Running, version: Some(3), stable: true, ..JobStatus::default() });
    let wire = wire_job(&job);
    let fields = [
        "ID",
        "Name",
        "Namespace",
        "Region",
        "Status",
        "Stop",
        "Version",
        "Stable",
        "SubmitTime",
        "ParentID",
        "Dispatched",
        "Payload",
        "CreateIndex",
        "ModifyIndex",
        "JobModifyIndex",
    ];
    let shown: Vec<String> = fields.iter().map(|field| format!("{field}={}", wire[field])).collect();
    let expected = expect_test::expect![[
        r#"ID="Web_1" Name="Web_1" Namespace="shop" Region="global" Status="running" Stop=true Version=3 Stable=true SubmitTime=1767225610000000000 ParentID="" Dispatched=false Payload=null CreateIndex=1767225610 ModifyIndex=991 JobModifyIndex=4"#
    ]];
    expected.assert_eq(&shown.join(" "));
    assert_eq!(wire["TaskGroups"][0]["Count"], 7, "what the scale says");
    // A job that is stopped stays so.
    let again = manifest(&wire.to_string());
    assert_eq!((&again["spec"]["stop"], &again["metadata"]["name"]), (&json!(true), &json!(job.metadata.name)));

    job.metadata.labels = Some([(label::PARENT.to_owned(), "nightly".to_owned())].into());
    assert_eq!(wire_job(&job)["ParentID"], "nightly");
    job.spec.dispatch =
        Some(Dispatch { parent: "render".to_owned(), payload: "aGk=".to_owned(), ..Dispatch::default() });
    let wire = wire_job(&job);
    let shown = ["ParentID", "Dispatched", "Payload"].map(|field| wire[field].clone());
    assert_eq!(shown, [json!("render"), json!(true), json!("aGk=")]);
}

/// What Nomad fills in where a job says nothing.
#[test]
fn what_a_job_leaves_out_is_there_with_nomads_defaults() {
    let wire = wire_job(&of_hcl(
        "job \"j\" {\n  type = \"batch\"\n  group \"g\" {\n    task \"t\" {\n      driver = \"exec\"\n    }\n  }\n}\n",
    ));
    let group = &wire["TaskGroups"][0];
    assert_eq!(
        group["ReschedulePolicy"],
        json!({ "Attempts": 1, "Interval": 86_400_000_000_000_i64, "Delay": 5_000_000_000_i64, "DelayFunction": "constant", "MaxDelay": 0, "Unlimited": false })
    );
    assert_eq!((&group["Update"], &group["Migrate"], &group["Count"]), (&Value::Null, &Value::Null, &json!(1)));
    let task = &group["Tasks"][0];
    assert_eq!(task["LogConfig"], json!({ "MaxFiles": 10, "MaxFileSizeMB": 10, "Disabled": false }));
    assert_eq!((&task["KillTimeout"], &task["Resources"]["CPU"]), (&json!(5_000_000_000_i64), &json!(100)));
}

#[test]
fn nomads_json_is_told_from_manifests_by_what_it_holds() {
    for (text, expected) in [
        (r#"{"Job": {"ID": "a"}}"#, true),
        (r#" {"ID": "a", "TaskGroups": null}"#, true),
        ("\u{feff}{\"Job\": 7}", true),
        (r#"{"apiVersion": "drover.dev/v1alpha1", "kind": "Job", "Job": {}}"#, false),
        (r#"{"kind": "Job"}"#, false),
        (r#"{"ID": "a"}"#, false),
        (r#"[{"Job": {}}]"#, false),
        (r#"{"Job": {}"#, false),
        (r#"{"Job": {}} {"Job": {}}"#, false),
        ("job \"a\" {}", false),
        ("", false),
    ] {
        assert_eq!(is_wire(text), expected, "{text}");
    }
}
