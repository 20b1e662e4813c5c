//! Word for word what a person reads: the field, the reason with the values of the spec, and the remedy.

use drover_api::JobSpec;
use drover_api::job::JobType;
use serde_json::{Value, json};

use super::super::*;
use super::spec;
use crate::definition::Definition;

/// What is wrong with a spec whose shape is right, as `drover job validate` prints it.
fn printed(spec: &Value) -> Vec<String> {
    let typed: JobSpec = serde_json::from_value(spec.clone()).unwrap_or_else(|error| panic!("{error}: {spec}"));
    violations(&Definition::new(&typed, "j")).iter().map(ToString::to_string).collect()
}

/// Changes of a plain spec, and all that is said of it.
type Row = (Vec<(&'static str, Value)>, Vec<&'static str>);

macro_rules! rows {
    ($( { $($path:literal : $value:tt),* } => [$($message:literal),* $(,)?]; )*) => {
        vec![$( (vec![$( ($path, json!($value)) ),*], vec![$( $message ),*]) ),*]
    };
}

fn check(rows: Vec<Row>) {
    for (changes, messages) in rows {
        assert_eq!(printed(&spec(&changes)), messages, "{changes:?}");
    }
}

#[test]
fn the_jobs_own_fields_are_named_with_reason_and_remedy() {
    check(rows! {
        { "id": "a b" } => ["spec.id: contains a space; remove it (JobIdSpace)"];
        { "id": "a\u{0}" } => [
            "spec.id: contains a NUL character; remove it (JobIdNul)",
            "spec.name: contains a NUL character; remove it (JobNameNul)",
        ];
        { "name": "a\u{0}" } => ["spec.name: contains a NUL character; remove it (JobNameNul)"];
        { "datacenters": ["dc1", "", "dc2", ""] } => [
            "spec.datacenters[1]: is empty; name a datacenter, or remove it (DatacenterEmpty)",
            "spec.datacenters[3]: is empty; name a datacenter, or remove it (DatacenterEmpty)",
        ];
        { "priority": 0 } => ["spec.priority: 0 is outside 1 to 100; take a value between (PriorityRange)"];
        { "priority": 101 } => ["spec.priority: 101 is outside 1 to 100; take a value between (PriorityRange)"];
        { "groups": [] } => ["spec.groups: is empty; add a group with a task (GroupsMissing)"];
        { "groups.0.count": 50_001 } => [
            "spec.groups: asks for 50001 allocations, above 50000; lower the counts, or split the job (CountTotal)",
        ];
        { "groups.0.count": 30_000, "groups.1": { "name": "h", "count": 30_000, "tasks": [{ "name": "t", "driver": "mock" }] } } => [
            "spec.groups: asks for 60000 allocations, above 50000; lower the counts, or split the job (CountTotal)",
        ];
        { "multiregion": {} } => ["spec.multiregion: is known and not acted on by this version of drover; remove it (NotSupportedYet)"];
    });
}

#[test]
fn group_names_are_labels_and_said_once() {
    let group = |name: &str| json!({ "name": name, "tasks": [{ "name": "t", "driver": "mock" }] });
    for (names, messages) in [
        (vec![""], vec!["spec.groups[0].name: is empty; name the group (GroupNameMissing)"]),
        (vec!["a\0"], vec!["spec.groups[0].name: contains a NUL character; remove it (GroupNameNul)"]),
        (
            vec!["Web"],
            vec!["spec.groups[0].name: Web is no DNS label; take a name such as web or api-2 (GroupNameFormat)"],
        ),
        (
            vec!["a", "-b"],
            vec!["spec.groups[1].name: -b is no DNS label; take a name such as web or api-2 (GroupNameFormat)"],
        ),
        (
            vec!["a-"],
            vec!["spec.groups[0].name: a- is no DNS label; take a name such as web or api-2 (GroupNameFormat)"],
        ),
        (
            vec!["a_b"],
            vec!["spec.groups[0].name: a_b is no DNS label; take a name such as web or api-2 (GroupNameFormat)"],
        ),
        (
            vec!["a", "b", "a"],
            vec!["spec.groups[2].name: a is also the name of spec.groups[0]; rename one of them (GroupDuplicate)"],
        ),
        (
            vec!["a", "a", "a"],
            vec![
                "spec.groups[1].name: a is also the name of spec.groups[0]; rename one of them (GroupDuplicate)",
                "spec.groups[2].name: a is also the name of spec.groups[1]; rename one of them (GroupDuplicate)",
            ],
        ),
        (vec!["0", "a-2", "a"], vec![]),
    ] {
        let groups: Vec<Value> = names.iter().map(|name| group(name)).collect();
        assert_eq!(printed(&spec(&[("groups", json!(groups))])), messages, "{names:?}");
    }
}

#[test]
fn sixty_four_groups_are_the_most_of_a_job() {
    let groups = |count: usize| -> Value {
        (0..count).map(|n| json!({ "name": format!("g{n}"), "tasks": [{ "name": "t", "driver": "mock" }] })).collect()
    };
    assert_eq!(printed(&spec(&[("groups", groups(64))])), [""; 0]);
    assert_eq!(
        printed(&spec(&[("groups", groups(65))])),
        ["spec.groups: has 65 groups, above 64; split the job (GroupsTooMany)"]
    );
}

#[test]
fn a_spec_above_256_kib_says_its_size() {
    let sized = |length: usize| spec(&[("groups.0.tasks.0.config.x", json!("x".repeat(length)))]);
    let size = |spec: &Value| {
        let typed: JobSpec = serde_json::from_value(spec.clone()).unwrap();
        serde_json::to_vec(&Definition::new(&typed, "j").spec).unwrap().len()
    };
    let room = SPEC_LIMIT_BYTES - size(&sized(0));
    assert_eq!(printed(&sized(room)), [""; 0]);
    assert_eq!(
        printed(&sized(room + 1)),
        ["spec: has 262145 bytes as JSON, above 262144; move files into artifacts (SpecTooLarge)"]
    );
}

#[test]
fn a_scale_request_names_one_of_several_groups() {
    let two = json!([
        { "name": "g", "tasks": [{ "name": "t", "driver": "mock" }] },
        { "name": "h", "tasks": [{ "name": "t", "driver": "mock" }] }
    ]);
    let open = "spec.scale.group: must name the group to scale, because the job has several; set it (ScaleGroup)";
    let unknown = "spec.scale.group: x is none of the job's groups; correct the name (ScaleGroup)";
    for (scale, with_one, with_two) in [
        (json!({ "count": 3 }), vec![], vec![open]),
        (json!({ "group": "g", "count": 3 }), vec![], vec![]),
        (json!({ "group": "x", "count": 3 }), vec![unknown], vec![unknown]),
        (json!({}), vec![], vec![]),
    ] {
        assert_eq!(printed(&spec(&[("scale", scale.clone())])), with_one, "{scale}");
        assert_eq!(printed(&spec(&[("scale", scale.clone()), ("groups", two.clone())])), with_two, "{scale}");
    }
}

#[test]
fn a_schedule_and_parameters_are_for_jobs_that_end() {
    check(rows! {
        { "periodic.crons": ["0 3 * * *"] } => ["spec.periodic: is for batch and sysbatch jobs; remove it, or change type (PeriodicType)"];
        { "type": "system", "periodic.crons": ["0 3 * * *"] } => ["spec.periodic: is for batch and sysbatch jobs; remove it, or change type (PeriodicType)"];
        { "type": "sysbatch", "periodic.crons": ["0 3 * * *"] } => [];
        { "type": "batch", "periodic": {} } => ["spec.periodic.crons: is empty; give at least one, as in 0 3 * * * (PeriodicSpec)"];
        { "type": "batch", "periodic": { "cron": "@daily", "crons": ["@daily"] } } => ["spec.periodic.crons: and cron are both given; keep crons (PeriodicSpec)"];
        { "parameterized": {} } => ["spec.parameterized: is for batch and sysbatch jobs; remove it, or change type (ParameterizedType)"];
        { "type": "batch", "parameterized": { "metaRequired": ["a", "b"], "metaOptional": ["c", "b", "a"] } } => [
            "spec.parameterized.metaOptional[1]: b is also in metaRequired; remove it from one of them (ParamMeta)",
            "spec.parameterized.metaOptional[2]: a is also in metaRequired; remove it from one of them (ParamMeta)",
        ];
        { "dispatch": { "parent": "p" } } => [
            "spec.type: must be that of the parameterized job, batch or sysbatch, for a dispatched one (DispatchType)",
        ];
    });
}

#[test]
fn a_groups_fields_are_named_with_their_place() {
    check(rows! {
        { "groups.0.count": (-1) } => ["spec.groups[0].count: is negative; set it to 0 or more (CountNegative)"];
        { "type": "system", "groups.0.count": 2 } => [
            "spec.groups[0].count: must be 0 or 1 on a system job; set it to 1, or change type (SystemCount)",
        ];
        { "type": "sysbatch", "groups.0.count": 2 } => [];
        { "groups.0.ephemeralDisk.sizeMB": 9, "groups.0.tasks.0.logs": { "maxFiles": 1, "maxFileSizeMB": 1 } } => [
            "spec.groups[0].ephemeralDisk.sizeMB: 9 is below 10; raise it (DiskMin)",
        ];
        { "groups.0.shutdownDelay": "-1s" } => [
            "spec.groups[0].shutdownDelay: -1s is negative; set it to 0s or more (ShutdownDelayNegative)",
        ];
        { "type": "batch", "groups.0.maxRunDuration": "0s" } => [
            "spec.groups[0].maxRunDuration: 0s is not above 0s; raise it, or remove it to run without limit (MaxRunDuration)",
        ];
        { "groups.0.maxRunDuration": "1h" } => [
            "spec.groups[0].maxRunDuration: is for batch and sysbatch jobs; remove it, or change type (MaxRunDuration)",
        ];
        { "type": "system", "groups.0.maxRunDuration": "-1h" } => [
            "spec.groups[0].maxRunDuration: -1h is not above 0s; raise it, or remove it to run without limit (MaxRunDuration)",
            "spec.groups[0].maxRunDuration: is for batch and sysbatch jobs; remove it, or change type (MaxRunDuration)",
        ];
        { "groups.0.tasks": [] } => ["spec.groups[0].tasks: is empty; add a task (TasksMissing)"];
        { "groups.0.tasks": [{ "name": "t", "driver": "mock", "lifecycle": { "hook": "prestart" } }] } => [
            "spec.groups[0].tasks: are all helpers; leave lifecycle out of at least one of them (MainTaskMissing)",
        ];
        { "groups.0.tasks": [{ "name": "t", "driver": "mock", "leader": true }, { "name": "u", "driver": "mock", "leader": true }, { "name": "v", "driver": "mock" }] } => [
            "spec.groups[0].tasks: have 2 leaders; set leader on one of them only (LeaderMultiple)",
        ];
        { "groups.0.tasks": [{ "name": "t", "driver": "mock" }, { "name": "u", "driver": "mock" }, { "name": "t", "driver": "mock" }] } => [
            "spec.groups[0].tasks[2].name: t is also the name of spec.groups[0].tasks[0]; rename one of them (TaskDuplicate)",
        ];
    });
}

#[test]
fn a_tasks_name_becomes_a_directory() {
    for (name, messages) in [
        ("", vec!["spec.groups[0].tasks[0].name: is empty; name the task (TaskNameMissing)"]),
        (
            "alloc",
            vec![
                "spec.groups[0].tasks[0].name: alloc is the name of the allocation's shared directory; take another name (TaskNameReserved)",
            ],
        ),
        (
            "a/b",
            vec![
                "spec.groups[0].tasks[0].name: a/b contains a slash; the name becomes a directory: remove it (TaskNameSlash)",
            ],
        ),
        (
            "a\\b",
            vec![
                "spec.groups[0].tasks[0].name: a\\b contains a slash; the name becomes a directory: remove it (TaskNameSlash)",
            ],
        ),
        ("a\0", vec!["spec.groups[0].tasks[0].name: contains a NUL character; remove it (TaskNameNul)"]),
        (
            "Server",
            vec![
                "spec.groups[0].tasks[0].name: Server is no DNS label; take a name such as server or log-shipper (TaskNameFormat)",
            ],
        ),
        (
            "..",
            vec![
                "spec.groups[0].tasks[0].name: .. is no DNS label; take a name such as server or log-shipper (TaskNameFormat)",
            ],
        ),
        ("log-shipper2", vec![]),
    ] {
        assert_eq!(printed(&spec(&[("groups.0.tasks.0.name", json!(name))])), messages, "{name}");
    }
}

#[test]
fn what_a_task_needs_is_bounded() {
    check(rows! {
        { "groups.0.tasks.0.driver": "" } => ["spec.groups[0].tasks[0].driver: is empty; name a driver (DriverMissing)"];
        { "groups.0.tasks.0.killTimeout": "-2s" } => [
            "spec.groups[0].tasks[0].killTimeout: -2s is negative; set it to 0s or more (KillTimeoutNegative)",
        ];
        { "groups.0.tasks.0.killTimeout": "11m" } => [
            "spec.groups[0].tasks[0].killTimeout: 11m is longer than update.progressDeadline 10m; shorten it (KillTimeoutTooLong)",
        ];
        { "groups.0.tasks.0.killTimeout": "11m", "groups.0.update.progressDeadline": "0s" } => [];
        { "type": "system", "groups.0.tasks.0.killTimeout": "11m" } => [];
        { "groups.0.tasks.0.shutdownDelay": "-1ms" } => [
            "spec.groups[0].tasks[0].shutdownDelay: -1ms is negative; set it to 0s or more (ShutdownDelayNegative)",
        ];
        { "groups.0.tasks.0.logs": { "maxFiles": 0, "maxFileSizeMB": 0 } } => [
            "spec.groups[0].tasks[0].logs.maxFiles: is below 1; raise it (LogLimits)",
            "spec.groups[0].tasks[0].logs.maxFileSizeMB: is below 1; raise it (LogLimits)",
        ];
        { "groups.0.tasks.0.logs": { "maxFiles": 30, "maxFileSizeMB": 10 } } => [
            "spec.groups[0].tasks[0].logs: need 300 MiB (maxFiles times maxFileSizeMB), not less than ephemeralDisk.sizeMB 300; keep fewer, or raise that (LogDisk)",
        ];
        { "groups.0.tasks.0.resources": { "cores": (-1) } } => [
            "spec.groups[0].tasks[0].resources.cores: is negative; set it to 0 or more (CoresNegative)",
        ];
        { "groups.0.tasks.0.resources": { "cores": 2, "cpu": 500 } } => [
            "spec.groups[0].tasks[0].resources.cores: and cpu exclude each other; remove one of them (CpuAndCores)",
        ];
        { "groups.0.tasks.0.resources": { "cpu": 0 } } => [
            "spec.groups[0].tasks[0].resources.cpu: is below 1; raise it, or ask for cores (CpuMin)",
        ];
        { "groups.0.tasks.0.resources": { "cores": 1, "cpu": 0 } } => [];
        { "groups.0.tasks.0.resources": { "memoryMB": 9 } } => [
            "spec.groups[0].tasks[0].resources.memoryMB: 9 is below 10; raise it (MemMin)",
        ];
        { "groups.0.tasks.0.resources": { "memoryMB": 128, "memoryMaxMB": 64 } } => [
            "spec.groups[0].tasks[0].resources.memoryMaxMB: 64 is below memoryMB 128; raise it, or set 0 for none or -1 for no limit (MemMaxBelowMem)",
        ];
        { "groups.0.tasks.0.resources": { "memoryMB": 128, "memoryMaxMB": (-2) } } => [
            "spec.groups[0].tasks[0].resources.memoryMaxMB: -2 is below memoryMB 128; raise it, or set 0 for none or -1 for no limit (MemMaxBelowMem)",
        ];
        { "groups.0.tasks.0.resources": { "memoryMB": 128, "secretsMB": 129 } } => [
            "spec.groups[0].tasks[0].resources.secretsMB: 129 is not within memoryMB 128, of which it is a part; lower it (SecretsMem)",
        ];
        { "groups.0.tasks.0.secrets": [{ "name": "a.b", "path": "db/creds" }, { "name": "c", "provider": "nomad", "path": "db/creds" }] } => [
            "spec.groups[0].tasks[0].secrets[0].name: a.b has other characters than letters, digits, _ and - (SecretName)",
            "spec.groups[0].tasks[0].secrets[0].path: db/creds cannot be the name of a Secret; correct it (SecretPath)",
        ];
        { "groups.0.tasks.0.secrets": [{ "name": "a", "path": "x" }, { "name": "a", "provider": "configmap", "path": "x y" }] } => [
            "spec.groups[0].tasks[0].secrets[1].name: a is also the name of another secret; rename one (SecretDuplicate)",
            "spec.groups[0].tasks[0].secrets[1].path: x y cannot be the name of a ConfigMap; correct it (SecretPath)",
        ];
        { "groups.0.tasks.0.env": { "DB": "${secret.db.password}" } } => [
            "spec.groups[0].tasks[0].env.DB: ${secret.db.password}: the task lists no secret db; add it to secrets, or correct the reference (SecretReference)",
        ];
        { "groups.0.tasks.0.resources.devices": [{ "name": "gpu", "constraints": [{ "lTarget": "${gpu.attr}", "rTarget": "1" }], "affinities": [{ "lTarget": "a", "rTarget": "b", "weight": 0 }] }] } => [
            "spec.groups[0].tasks[0].resources.devices[0].constraints[0].lTarget: ${gpu.attr} is no target; take ${attr.<key>}, ${meta.<key>}, ${device.<key>} or ${node.…} (ConstraintTarget)",
            "spec.groups[0].tasks[0].resources.devices[0].affinities[0].weight: 0 has no effect or is too strong; take -100 to -1, or 1 to 100 (AffinityWeight)",
        ];
        { "groups.0.tasks.1": { "name": "u", "driver": "mock", "lifecycle": { "hook": "poststop", "sidecar": true } } } => [
            "spec.groups[0].tasks[1].lifecycle.sidecar: is set on a poststop task, beside which nothing runs; set it to false (PoststopSidecar)",
        ];
        { "groups.0.tasks.1": { "name": "u", "driver": "mock", "lifecycle": { "hook": "prestart", "sidecar": true } } } => [];
    });
}

/// A job whose only task has these fields.
fn of_task(part: &Value) -> Value {
    let mut task = json!({ "name": "t", "driver": "mock" });
    for (key, value) in part.as_object().unwrap() {
        task[key] = value.clone();
    }
    spec(&[("groups.0.tasks.0", task)])
}

#[test]
fn a_tasks_files_stay_below_its_directories() {
    for (part, messages) in [
        (
            json!({ "templates": [{ "destPath": "local/a" }] }),
            vec![
                "templates[0].embeddedTmpl: and sourcePath are both or neither given; give the text here, or a file there (TemplateSource)",
            ],
        ),
        (
            json!({ "templates": [{ "destPath": "local/a", "embeddedTmpl": "x", "sourcePath": "y" }] }),
            vec![
                "templates[0].embeddedTmpl: and sourcePath are both or neither given; give the text here, or a file there (TemplateSource)",
            ],
        ),
        (
            json!({ "templates": [{ "destPath": "/etc/app", "embeddedTmpl": "x", "perms": "0600", "splay": "1s",
                                    "wait": { "min": "1m" }, "changeMode": "script",
                                    "changeScript": { "command": "/bin/true" } }] }),
            vec![],
        ),
        (
            json!({ "templates": [{ "destPath": "local/a", "embeddedTmpl": "x", "changeMode": "script" }] }),
            vec!["templates[0].changeScript: belongs to changeMode script; set both, or neither (TemplateScript)"],
        ),
        (
            json!({ "templates": [{ "destPath": "local/a", "embeddedTmpl": "x", "changeScript": { "command": "a" } }] }),
            vec!["templates[0].changeScript: belongs to changeMode script; set both, or neither (TemplateScript)"],
        ),
        (
            json!({ "driver": "containerd", "config": { "image": "a" },
                    "templates": [{ "destPath": "local/a", "embeddedTmpl": "x", "changeMode": "script",
                                    "changeScript": { "command": "a" } }] }),
            vec![
                "templates[0].changeMode: is not for driver containerd, whose tasks no script enters; take changeMode signal or restart (TemplateScript)",
            ],
        ),
        (
            json!({ "secrets": [{ "name": "db", "path": "db" }],
                    "templates": [{ "destPath": "local/a", "embeddedTmpl": "x", "rolling": true }] }),
            vec![],
        ),
        (
            json!({ "templates": [{ "destPath": "local/a", "embeddedTmpl": "x", "rolling": true, "once": true }] }),
            vec![
                "templates[0].rolling: has no effect with once, which renders no new values; remove one of the two (TemplateRolling)",
                "templates[0].rolling: needs a Secret or ConfigMap in the task's secrets, whose new values it takes in turn; list it there, or remove rolling (TemplateRolling)",
            ],
        ),
        (
            json!({ "driver": "exec", "config": { "command": "a" }, "imagePullSecrets": ["regcred"] }),
            vec!["imagePullSecrets: are for driver containerd, which pulls images; remove them (ImagePullSecrets)"],
        ),
        (
            json!({ "driver": "containerd", "config": { "image": "a" }, "imagePullSecrets": ["regcred", "Reg/cred"] }),
            vec!["imagePullSecrets[1]: Reg/cred cannot be the name of a Secret; correct it (SecretPath)"],
        ),
        (
            json!({ "templates": [{ "destPath": "local/a", "embeddedTmpl": "x", "perms": "4755" }] }),
            vec!["templates[0].perms: 4755 is no octal mode up to 0777; write it as in 0644 (TemplatePerms)"],
        ),
        (
            json!({ "templates": [{ "destPath": "local/a", "embeddedTmpl": "x", "wait": { "min": "9s", "max": "8s" } }] }),
            vec!["templates[0].wait: has a max below its min; raise max, or lower min (TemplateWait)"],
        ),
        (
            json!({ "templates": [{ "destPath": "local/../../x", "embeddedTmpl": "x" }] }),
            vec![
                "templates[0].destPath: local/../../x must be a path below the task's directory without ..; write it as in local/app.conf (TemplateDest)",
            ],
        ),
        (json!({ "templates": [{ "destPath": "local/..x", "embeddedTmpl": "x" }] }), vec![]),
        (
            json!({ "templates": [{ "destPath": "local/a", "embeddedTmpl": "x", "changeMode": "signal" }] }),
            vec!["templates[0].changeSignal: belongs to changeMode signal; set both, or neither (TemplateSignal)"],
        ),
        (
            json!({ "templates": [{ "destPath": "local/a", "embeddedTmpl": "x", "changeMode": "restart", "changeSignal": "SIGHUP" }] }),
            vec!["templates[0].changeSignal: belongs to changeMode signal; set both, or neither (TemplateSignal)"],
        ),
        (
            json!({ "templates": [{ "destPath": "local/a", "embeddedTmpl": "x", "changeMode": "signal", "changeSignal": "SIGHUP" }] }),
            vec![],
        ),
        (
            json!({ "artifacts": [{ "getterSource": "https://example.org/a", "relativeDest": "../a" }] }),
            vec![
                "artifacts[0].relativeDest: ../a must be a relative path without ..; write it as in local/bin (ArtifactDest)",
            ],
        ),
        (
            json!({ "dispatchPayload": { "file": "/input" } }),
            vec![
                "dispatchPayload.file: /input must be a relative path without ..; write it as in input.txt (PayloadFile)",
            ],
        ),
    ] {
        let messages: Vec<String> =
            messages.into_iter().map(|message| format!("spec.groups[0].tasks[0].{message}")).collect();
        assert_eq!(printed(&of_task(&part)), messages, "{part}");
    }
}

#[test]
fn what_a_template_names_is_listed() {
    let text = r#"{{ secret "db" }}{{ key "app/k" }}{{ nomadVar "app" }}{{ ls "nomad/db" }}"#;
    let task = of_task(&json!({
        "secrets": [{ "name": "db", "path": "db" }, { "name": "app", "provider": "configmap", "path": "app" }],
        "templates": [{ "destPath": "local/a", "embeddedTmpl": text }],
    }));
    let expected = [
        "spec.groups[0].tasks[0].templates[0].embeddedTmpl: looks up Secret app, which the task does not list; add {name: app, path: app} to its secrets (TemplateObject)",
        "spec.groups[0].tasks[0].templates[0].embeddedTmpl: looks up ConfigMap nomad.db, which the task does not list; add {name: nomad-db, path: nomad.db, provider: configmap} to its secrets (TemplateObject)",
    ];
    assert_eq!(printed(&task), expected);
}

#[test]
fn an_identity_has_a_name_a_file_and_a_limit_that_can_be() {
    for (part, messages) in [
        (
            json!({ "identities": [{ "name": "a", "filepath": "secrets/../../token" }] }),
            vec![
                "identities[0].filepath: secrets/../../token must be a relative path without ..; write it as in secrets/token (IdentityFile)",
                "identities[0].filepath: needs file true; set it, or remove filepath (IdentityFile)",
            ],
        ),
        (
            json!({ "identities": [{ "name": "a.b", "changeMode": "script" }, { "name": "default", "ttl": "1h" }] }),
            vec![
                "identities[0].name: a.b must be 1 to 63 letters, digits, - and _; rename it (IdentityName)",
                "identities[0].changeMode: is script, which identities have not; take noop, restart or signal (IdentityMode)",
                "identities[1].ttl: is not for the default identity, which ends with its allocation; remove it, or name another identity (IdentityTtl)",
            ],
        ),
        (
            json!({ "identities": [
                { "name": "a", "changeMode": "signal" }, { "name": "b", "changeSignal": "SIGHUP" },
                { "name": "c", "ttl": "-1s" },
            ] }),
            vec![
                "identities[0].changeSignal: belongs to changeMode signal; set both, or neither (IdentitySignal)",
                "identities[1].changeSignal: belongs to changeMode signal; set both, or neither (IdentitySignal)",
                "identities[2].ttl: is negative; give how long a token counts, as in 1h (IdentityTtl)",
            ],
        ),
        (
            json!({ "identities": [
                { "name": "default", "kubernetes": { "serviceAccount": "web" } },
                { "name": "b", "kubernetes": {}, "extraClaims": { "a": "b" }, "ttl": "5m" },
                { "name": "c", "kubernetes": { "serviceAccount": "web" }, "ttl": "10m" },
            ] }),
            vec![
                "identities[0].kubernetes: is not for the default identity, which drover's own API takes; name another identity (IdentityAccount)",
                "identities[1].kubernetes.serviceAccount: is empty; name a ServiceAccount of the namespace (IdentityAccount)",
                "identities[1].extraClaims: are not for a ServiceAccount's token; remove them (IdentityAccount)",
                "identities[1].ttl: is below 10m, for which the API server makes no token; give 10m or more (IdentityTtl)",
            ],
        ),
    ] {
        let messages: Vec<String> =
            messages.into_iter().map(|message| format!("spec.groups[0].tasks[0].{message}")).collect();
        assert_eq!(printed(&of_task(&part)), messages, "{part}");
    }
}

#[test]
fn a_mount_goes_to_an_absolute_path_and_names_a_volume_of_the_group() {
    let mount = |mount: Value| {
        spec(&[
            ("groups.0.volumes", json!([{ "name": "v", "type": "host", "source": "s" }])),
            ("groups.0.tasks.0.volumeMounts", json!([mount])),
        ])
    };
    for (given, messages) in [
        (
            json!({ "volume": "w", "destination": "/data" }),
            vec!["volume: w is none of the group's volumes; declare it, or correct the name (VolumeMountRef)"],
        ),
        (
            json!({ "volume": "v", "destination": "/data", "propagationMode": "bidirectional" }),
            vec![
                "propagationMode: is known and not acted on by this version of drover; remove it, mounts are private (NotSupportedYet)",
            ],
        ),
        (
            json!({ "volume": "v", "destination": "/data", "selinuxLabel": "z" }),
            vec!["selinuxLabel: is known and not acted on by this version of drover; remove it (NotSupportedYet)"],
        ),
        (
            json!({ "volume": "v", "destination": "data" }),
            vec!["destination: data must be an absolute path without ..; write it as in /data (MountDestination)"],
        ),
        (
            json!({ "volume": "v", "destination": "/data/../etc" }),
            vec![
                "destination: /data/../etc must be an absolute path without ..; write it as in /data (MountDestination)",
            ],
        ),
        (json!({ "volume": "v", "destination": "/data/..a" }), vec![]),
    ] {
        let messages: Vec<String> =
            messages.into_iter().map(|message| format!("spec.groups[0].tasks[0].volumeMounts[0].{message}")).collect();
        assert_eq!(printed(&mount(given.clone())), messages, "{given}");
    }
}

#[test]
fn policies_name_the_values_that_contradict_each_other() {
    check(rows! {
        { "groups.0.update": { "maxParallel": (-1), "canary": (-1) } } => [
            "spec.groups[0].update.maxParallel: is negative; set it to 0 or more (UpdateMaxParallel)",
            "spec.groups[0].update.canary: is negative; set it to 0 or more (UpdateCanary)",
        ];
        { "type": "system", "groups.0.update.canary": 101 } => [
            "spec.groups[0].update.canary: 101 is a percentage of the nodes on a system job; set it to at most 100 (SystemCanary)",
        ];
        { "groups.0.update.canary": 101 } => [];
        { "groups.0.update.autoPromote": true } => [
            "spec.groups[0].update.autoPromote: needs canaries; set canary to at least 1, or autoPromote to false (AutoPromoteNoCanary)",
        ];
        { "groups.0.update.minHealthyTime": "5m" } => [
            "spec.groups[0].update.minHealthyTime: 5m is negative or not shorter than healthyDeadline 5m; shorten it, or raise healthyDeadline (MinHealthy)",
        ];
        { "groups.0.update": { "minHealthyTime": "-1s", "healthyDeadline": "0s" } } => [
            "spec.groups[0].update.minHealthyTime: -1s is negative or not shorter than healthyDeadline 0s; shorten it, or raise healthyDeadline (MinHealthy)",
            "spec.groups[0].update.healthyDeadline: 0s is not above 0s; raise it (HealthyDeadline)",
        ];
        { "groups.0.update.healthyDeadline": "10m" } => [
            "spec.groups[0].update.healthyDeadline: 10m is not shorter than progressDeadline 10m; shorten it, or raise progressDeadline (HealthyDeadline)",
        ];
        { "groups.0.update.progressDeadline": "-1s" } => [
            "spec.groups[0].update.progressDeadline: -1s is negative; set it to 0s or more (ProgressDeadline)",
        ];
        { "groups.0.update.stagger": "-3s" } => ["spec.groups[0].update.stagger: -3s is not above 0s; raise it (Stagger)"];
        { "type": "batch", "update": {}, "groups.0.update": {} } => [
            "spec.update: is for service and system jobs; remove it, or change type (UpdateForbidden)",
            "spec.groups[0].update: is for service and system jobs; remove it, or change type (UpdateForbidden)",
        ];
        { "groups.0.migrate": { "maxParallel": (-1), "healthCheck": "manual", "minHealthyTime": "6m" } } => [
            "spec.groups[0].migrate.maxParallel: is negative; set it to 0 or more (MigrateMaxParallel)",
            "spec.groups[0].migrate.healthCheck: manual would wait for a person at every move; take checks or task_states (MigrateHealthCheck)",
            "spec.groups[0].migrate.minHealthyTime: 6m is longer than healthyDeadline 5m; shorten it, or raise that (MigrateTimes)",
        ];
        { "groups.0.migrate": { "minHealthyTime": "-2s", "healthyDeadline": "-1s" } } => [
            "spec.groups[0].migrate.minHealthyTime: -2s is negative; set it to 0s or more (MigrateTimes)",
            "spec.groups[0].migrate.healthyDeadline: -1s is negative; set it to 0s or more (MigrateTimes)",
        ];
        { "type": "system", "groups.0.migrate": {} } => [
            "spec.groups[0].migrate: is for service jobs; remove it, or change type (MigrateForbidden)",
        ];
        { "groups.0.restart": { "attempts": 0, "mode": "delay", "interval": "4s" } } => [
            "spec.groups[0].restart.interval: 4s is below 5s; raise it (RestartInterval)",
            "spec.groups[0].restart.mode: delay needs attempts; set attempts to at least 1, or mode to fail (RestartAmbiguous)",
        ];
        { "groups.0.restart": { "attempts": 5, "delay": "15s", "interval": "1m" } } => [
            "spec.groups[0].restart.attempts: 5 restarts 15s apart need 1m15s, longer than interval 1m; raise interval, or lower attempts or delay (RestartImpossible)",
        ];
        { "groups.0.tasks.0.restart": { "attempts": 5, "delay": "15s", "interval": "1m" } } => [
            "spec.groups[0].tasks[0].restart.attempts: 5 restarts 15s apart need 1m15s, longer than interval 1m; raise interval, or lower attempts or delay (RestartImpossible)",
        ];
    });
}

#[test]
fn a_reschedule_policy_says_what_is_missing() {
    check(rows! {
        { "type": "system", "groups.0.reschedule": { "attempts": 0, "unlimited": false } } => [
            "spec.groups[0].reschedule: is for service and batch jobs; remove it, or change type (RescheduleForbidden)",
        ];
        { "groups.0.reschedule": { "attempts": 2, "unlimited": true } } => [
            "spec.groups[0].reschedule.attempts: excludes unlimited; remove attempts, or set unlimited to false (RescheduleAmbiguous)",
        ];
        { "groups.0.reschedule": { "attempts": 2, "unlimited": false, "interval": "0s" } } => [
            "spec.groups[0].reschedule.attempts: needs interval, the span in which attempts are counted; set it (RescheduleAttemptsInterval)",
            "spec.groups[0].reschedule.interval: 0s is below 15s; raise it (RescheduleInterval)",
            "spec.groups[0].reschedule.attempts: 2 reschedules do not fit into interval 0s: 0 do; lower attempts, or raise interval to at least 1m1ns (RescheduleImpossible)",
        ];
        { "groups.0.reschedule": { "delay": "1s", "unlimited": true } } => [
            "spec.groups[0].reschedule.delay: 1s is below 5s; raise it (RescheduleDelay)",
        ];
        { "groups.0.reschedule": { "delay": "10s", "maxDelay": "9s", "unlimited": true } } => [
            "spec.groups[0].reschedule.maxDelay: 9s is below 5s or below delay 10s; raise it (RescheduleMaxDelay)",
        ];
        { "groups.0.reschedule": { "delay": "5s", "attempts": 1, "interval": "14s", "unlimited": false } } => [
            "spec.groups[0].reschedule.interval: 14s is below 15s; raise it (RescheduleInterval)",
        ];
        { "groups.0.reschedule": { "delay": "10s", "attempts": 4, "interval": "1m", "unlimited": false, "delayFunction": "fibonacci", "maxDelay": "1h" } } => [];
        { "groups.0.reschedule": { "delay": "10s", "attempts": 6, "interval": "1m", "unlimited": false, "delayFunction": "fibonacci", "maxDelay": "1h" } } => [
            "spec.groups[0].reschedule.attempts: 6 reschedules do not fit into interval 1m: 5 do; lower attempts, or raise interval to at least 1m20s (RescheduleImpossible)",
        ];
        { "groups.0.reschedule": { "attempts": 0, "unlimited": false, "delay": "1s", "interval": "1s" } } => [];
    });
}

#[test]
fn disconnect_times_exclude_each_other() {
    check(rows! {
        { "groups.0.disconnect.lostAfter": "-1m" } => [
            "spec.groups[0].disconnect.lostAfter: -1m is negative; set it to 0s or more (DisconnectLostNegative)",
        ];
        { "groups.0.disconnect.stopOnClientAfter": "-1m" } => [
            "spec.groups[0].disconnect.stopOnClientAfter: -1m is negative; set it to 0s or more (DisconnectStopNegative)",
        ];
        { "groups.0.disconnect": { "stopOnClientAfter": "0s", "lostAfter": "1m" } } => [
            "spec.groups[0].disconnect.stopOnClientAfter: and lostAfter exclude each other; remove one of them (DisconnectBoth)",
        ];
        { "type": "sysbatch", "groups.0.disconnect.stopOnClientAfter": "1m" } => [
            "spec.groups[0].disconnect.stopOnClientAfter: is for service and batch jobs; remove it, or change type (DisconnectStopType)",
        ];
    });
}

#[test]
fn every_comparison_that_cannot_be_made_is_explained() {
    let left = "${attr.cpu.arch}";
    for (constraint, messages) in [
        (
            json!({ "operand": "=", "rTarget": "a" }),
            vec!["lTarget: is empty; say what is compared, as in ${attr.kernel.name} (ConstraintLTarget)"],
        ),
        (
            json!({ "lTarget": "${attr", "rTarget": "a" }),
            vec![
                "lTarget: ${attr is no target; take ${attr.<key>}, ${meta.<key>}, ${device.<key>} or ${node.…} (ConstraintTarget)",
            ],
        ),
        (
            json!({ "lTarget": "${node.class.x}", "rTarget": "a" }),
            vec![
                "lTarget: ${node.class.x} is no target; take ${attr.<key>}, ${meta.<key>}, ${device.<key>} or ${node.…} (ConstraintTarget)",
            ],
        ),
        (
            json!({ "lTarget": left, "operand": "is_set", "rTarget": "a" }),
            vec!["rTarget: is not looked at by is_set; remove it (ConstraintRTarget)"],
        ),
        (
            json!({ "lTarget": left, "operand": "is_not_set", "rTarget": "a" }),
            vec!["rTarget: is not looked at by is_not_set; remove it (ConstraintRTarget)"],
        ),
        (
            json!({ "lTarget": left, "operand": "distinct_property", "rTarget": "two" }),
            vec!["rTarget: two is no number of allocations; take 1 or more (DistinctPropertyCount)"],
        ),
        (
            json!({ "lTarget": left, "operand": "distinct_property", "rTarget": "-1" }),
            vec!["rTarget: -1 is no number of allocations; take 1 or more (DistinctPropertyCount)"],
        ),
        (json!({ "lTarget": left, "operand": "distinct_property" }), vec![]),
        (
            json!({ "lTarget": left, "operand": "semver", "rTarget": "~> 1.2" }),
            vec![
                "rTarget: ~> 1.2 is no SemVer constraint; write it as in >= 6.1.0, < 7.0.0, without ~> (ConstraintSemver)",
            ],
        ),
        (
            json!({ "lTarget": left, "operand": "version", "rTarget": "six" }),
            vec!["rTarget: six is no version constraint; write it as in >= 6.1, < 7 (ConstraintVersion)"],
        ),
        (json!({ "lTarget": left, "operand": "version", "rTarget": "${meta.wanted}" }), vec![]),
        (json!({ "lTarget": left, "operand": "regexp", "rTarget": "${meta.pattern}" }), vec![]),
        (json!({ "operand": "distinct_hosts" }), vec![]),
    ] {
        let messages: Vec<String> =
            messages.into_iter().map(|message| format!("spec.constraints[0].{message}")).collect();
        assert_eq!(printed(&spec(&[("constraints", json!([constraint]))])), messages, "{constraint}");
    }
}

#[test]
fn every_comparing_operand_needs_something_to_compare_with() {
    let empty = "is empty; say what it is compared with, or take operand is_set (ConstraintRTarget)";
    let compared =
        ["=", "==", "is", "!=", "not", "<", "<=", ">", ">=", "set_contains", "set_contains_all", "set_contains_any"];
    for operand in compared {
        let constraint = json!([{ "lTarget": "${meta.a}", "operand": operand }]);
        let changes = [("constraints", constraint.clone()), ("groups.0.affinities", constraint)];
        assert_eq!(
            printed(&spec(&changes)),
            [format!("spec.constraints[0].rTarget: {empty}"), format!("spec.groups[0].affinities[0].rTarget: {empty}")],
            "{operand}"
        );
    }
}

#[test]
fn preferences_are_weighed_and_compared() {
    check(rows! {
        { "affinities": [{ "lTarget": "a", "rTarget": "b", "weight": 101 }, { "lTarget": "a", "rTarget": "b", "weight": (-101) }, { "lTarget": "a", "rTarget": "b", "weight": (-100) }] } => [
            "spec.affinities[0].weight: 101 has no effect or is too strong; take -100 to -1, or 1 to 100 (AffinityWeight)",
            "spec.affinities[1].weight: -101 has no effect or is too strong; take -100 to -1, or 1 to 100 (AffinityWeight)",
        ];
        { "affinities": [{ "lTarget": "a", "operand": "is_set" }, { "operand": "distinct_hosts" }] } => [
            "spec.affinities[0].operand: is_set is for constraints only; compare a value, as with = (AffinityOperand)",
            "spec.affinities[1].operand: distinct_hosts is for constraints only; compare a value, as with = (AffinityOperand)",
        ];
        { "groups.0.tasks.0.constraints": [{ "operand": "distinct_hosts" }, { "lTarget": "${meta.a}", "operand": "distinct_property" }] } => [
            "spec.groups[0].tasks[0].constraints[0].operand: distinct_hosts counts allocations; move it to the group or the job (DistinctAtTask)",
            "spec.groups[0].tasks[0].constraints[1].operand: distinct_property counts allocations; move it to the group or the job (DistinctAtTask)",
        ];
        { "spreads": [{ "attribute": "", "weight": 0 }, { "attribute": "${meta.a}", "weight": 101 }] } => [
            "spec.spreads[0].attribute: is empty; name an attribute, as in ${node.datacenter} (SpreadAttribute)",
            "spec.spreads[0].weight: 0 is outside 1 to 100; take a value between (SpreadWeight)",
            "spec.spreads[1].weight: 101 is outside 1 to 100; take a value between (SpreadWeight)",
        ];
        { "groups.0.spreads": [{ "attribute": "a", "targets": [{ "value": "x", "percent": 60 }, { "value": "x", "percent": 41 }, { "value": "y", "percent": (-1) }] }] } => [
            "spec.groups[0].spreads[0].targets[1].value: x is given twice; remove one (SpreadTarget)",
            "spec.groups[0].spreads[0].targets[2].percent: -1 is outside 0 to 100; take a value between (SpreadTarget)",
            "spec.groups[0].spreads[0].targets: have percents above 100 together (101); lower some (SpreadTarget)",
        ];
        { "type": "system", "affinities": [{ "lTarget": "a", "rTarget": "b" }], "groups.0.spreads": [{ "attribute": "a" }] } => [
            "spec.affinities: do not apply to system jobs, which run on every node that fits; use constraints (SystemAffinity)",
            "spec.groups[0].spreads: do not apply to system jobs, which run on every node that fits; remove them (SystemSpread)",
        ];
    });
}

#[test]
fn networks_and_ports_are_named_by_their_place() {
    check(rows! {
        { "groups.0.networks": [{ "mode": "bridge", "hostname": "a_b" }] } => [
            "spec.groups[0].networks[0].hostname: a_b is no DNS name; take letters, digits, - and dots (Hostname)",
        ];
        { "groups.0.networks": [{ "mode": "cni" }] } => [
            "spec.groups[0].networks[0].cni.name: is missing with mode cni; name a CNI network of the node (CniName)",
        ];
        { "groups.0.networks": [{ "ports": [{ "label": "a b" }, { "label": "" }] }] } => [
            "spec.groups[0].networks[0].ports[0].label: a b must consist of letters, digits, _ and -, as in http; it becomes part of NOMAD_PORT_<label> (PortLabel)",
            "spec.groups[0].networks[0].ports[1].label:  must consist of letters, digits, _ and -, as in http; it becomes part of NOMAD_PORT_<label> (PortLabel)",
        ];
        { "groups.0.networks": [{ "ports": [{ "label": "a", "static": 0 }, { "label": "b", "static": 65_536, "to": (-2) }] }] } => [
            "spec.groups[0].networks[0].ports[0].static: 0 is no port; take 1 to 65535, or leave it out for a free one (PortRange)",
            "spec.groups[0].networks[0].ports[1].static: 65536 is no port; take 1 to 65535, or leave it out for a free one (PortRange)",
            "spec.groups[0].networks[0].ports[1].to: -2 is no port; take 1 to 65535, or -1 for the same as on the node (PortTo)",
        ];
        { "groups.0.networks": [{ "ports": [{ "label": "a", "static": 80 }, { "label": "b", "static": 80, "hostNetwork": "default" }, { "label": "c", "static": 80, "hostNetwork": "public" }] }] } => [
            "spec.groups[0].networks[0].ports[1].static: 80 is asked for twice on host network default; change one (StaticPortDuplicate)",
        ];
        { "groups.0.networks": [{ "ports": [{ "label": "a" }, { "label": "a" }] }] } => [
            "spec.groups[0].networks[0].ports[1].label: a is used twice in the group; rename one (PortLabelDuplicate)",
        ];
        { "groups.0.networks": [{ "mode": "bridge", "ports": [{ "label": "a", "static": 80, "ignoreCollision": true }] }] } => [
            "spec.groups[0].networks[0].ports[0].ignoreCollision: is for mode host, not for bridge; remove it, or change mode (IgnoreCollisionMode)",
        ];
    });
}

#[test]
fn a_hostname_is_a_dns_name() {
    let label = |length: usize| "a".repeat(length);
    let right = [label(63), format!("{}.example", label(63)), "A-1.b".to_owned(), "x${NOMAD_ALLOC_INDEX}_".to_owned()];
    let wrong =
        [label(64), "a..b".to_owned(), "a.".to_owned(), "-a".to_owned(), "a-".to_owned(), vec![label(63); 4].join(".")];
    for (names, count) in [(right.as_slice(), 0), (wrong.as_slice(), 1)] {
        for name in names {
            let network = json!([{ "mode": "bridge", "hostname": name }]);
            assert_eq!(printed(&spec(&[("groups.0.networks", network)])).len(), count, "{name}");
        }
    }
}

#[test]
fn services_and_their_checks_are_named_by_their_place() {
    check(rows! {
        { "groups.0.services": [{ "name": "s", "address": "10.0.0.1", "addressMode": "host" }] } => [
            "spec.groups[0].services[0].address: needs addressMode auto; remove one of them (ServiceAddress)",
        ];
        { "groups.0.services": [{ "name": "s", "address": "10.0.0.1", "addressMode": "auto" }] } => [];
        { "groups.0.tasks.0.services": [{ "name": "s", "checks": [{ "name": "c", "type": "http", "interval": "999ms", "timeout": "0s" }] }] } => [
            "spec.groups[0].tasks[0].services[0].checks[0].interval: 999ms is below 1s; raise it (CheckTimes)",
            "spec.groups[0].tasks[0].services[0].checks[0].timeout: 0s is below 1s; raise it (CheckTimes)",
            "spec.groups[0].tasks[0].services[0].checks[0].path: is missing on an http check; give it, as in /health (CheckPath)",
        ];
        { "groups.0.services": [{ "name": "s" }, { "name": "s" }] } => [
            "spec.groups[0].services[1]: s is given twice with the same task and port; remove one (ServiceDuplicate)",
        ];
    });
}

#[test]
fn volumes_say_what_their_sort_allows() {
    let volume = |volume: &Value| {
        let mut whole = json!({ "name": "v", "source": "s" });
        for (key, value) in volume.as_object().unwrap() {
            whole[key] = value.clone();
        }
        json!([whole])
    };
    let block = json!({ "type": "csi", "accessMode": "single-node-writer", "attachmentMode": "block-device" });
    for (given, messages) in [
        (json!({ "type": "host", "source": "" }), vec!["source: is empty; name a volume (VolumeSource)"]),
        (
            json!({ "type": "host", "perAlloc": true, "sticky": true }),
            vec!["perAlloc: and sticky exclude each other; remove one of them (PerAllocSticky)"],
        ),
        (
            json!({ "type": "host", "mountOptions": {} }),
            vec!["mountOptions: are for csi volumes; remove them (HostVolumeMount)"],
        ),
        (
            json!({ "type": "host", "accessMode": "single-node-reader" }),
            vec![
                "accessMode: single-node-reader needs readOnly: true; set it, or take a writer mode (HostVolumeMount)",
            ],
        ),
        (
            json!({ "type": "host", "accessMode": "single-node-reader-only" }),
            vec![
                "accessMode: single-node-reader-only needs readOnly: true; set it, or take a writer mode (HostVolumeMount)",
            ],
        ),
        (
            json!({ "type": "host", "accessMode": "multi-node-single-writer" }),
            vec![
                "accessMode: multi-node-single-writer spans nodes, but a host volume is on one; take one of single-node-* (HostVolumeMount)",
            ],
        ),
        (
            json!({ "type": "csi" }),
            vec![
                "attachmentMode: is missing; take file-system or block-device (CsiAttachment)",
                "accessMode: is missing; take one such as single-node-writer (CsiAccess)",
            ],
        ),
        (
            json!({ "sticky": true, "type": "csi", "accessMode": "single-node-writer", "attachmentMode": "block-device" }),
            vec!["sticky: is for host volumes; remove it (VolumeSticky)"],
        ),
        (block.clone(), vec![]),
        (
            json!({ "type": "csi", "accessMode": "single-node-writer", "attachmentMode": "block-device", "mountOptions": {} }),
            vec![
                "attachmentMode: block-device takes no mountOptions; remove them, or take file-system (CsiAttachment)",
            ],
        ),
        (
            json!({ "type": "csi", "accessMode": "single-node-multi-writer", "attachmentMode": "file-system" }),
            vec![
                "accessMode: single-node-multi-writer is for host volumes; take single-node-reader-only or single-node-writer (CsiAccess)",
            ],
        ),
        (
            json!({ "type": "csi", "accessMode": "single-node-reader-only", "attachmentMode": "file-system" }),
            vec![
                "accessMode: single-node-reader-only needs readOnly: true; set it, or take a writer mode (CsiReaderRO)",
            ],
        ),
    ] {
        let messages: Vec<String> =
            messages.into_iter().map(|message| format!("spec.groups[0].volumes[0].{message}")).collect();
        assert_eq!(printed(&spec(&[("groups.0.volumes", volume(&given))])), messages, "{given}");
    }
}

#[test]
fn a_volume_of_one_user_is_not_for_two_allocations() {
    let refused = |mode: &str| {
        format!(
            "spec.groups[0].volumes[0].accessMode: {mode} allows one user, but count is 2; set perAlloc, another mode, or count 1 (CsiSingle)"
        )
    };
    for (mode, when_writing, when_reading) in [
        ("single-node-reader-only", true, true),
        ("single-node-writer", true, true),
        ("multi-node-reader-only", false, false),
        ("multi-node-single-writer", true, false),
        ("multi-node-multi-writer", false, false),
    ] {
        for (is_reader, is_single) in [(false, when_writing), (true, when_reading)] {
            for (count, is_own) in [(1, false), (2, false), (2, true)] {
                let volume = json!([{ "name": "v", "source": "s", "type": "csi", "accessMode": mode, "readOnly": is_reader,
                    "attachmentMode": "file-system", "perAlloc": is_own }]);
                let mut found = printed(&spec(&[("groups.0.volumes", volume), ("groups.0.count", json!(count))]));
                found.retain(|message| !message.contains("CsiReaderRO"));
                let wanted: Vec<String> = Vec::from_iter((is_single && count > 1 && !is_own).then(|| refused(mode)));
                assert_eq!(found, wanted, "{mode} readOnly={is_reader} count={count} perAlloc={is_own}");
            }
        }
    }
}

#[test]
fn volumes_per_allocation_need_numbered_allocations_and_no_canaries() {
    let own = json!([{ "name": "v", "source": "s", "type": "host", "perAlloc": true }]);
    for kind in JobType::ALL {
        let is_numbered = matches!(kind, JobType::Service | JobType::Batch);
        let wanted: Vec<&str> = Vec::from_iter((!is_numbered).then_some(
            "spec.groups[0].volumes[0].perAlloc: is for service and batch jobs, whose allocations are numbered; remove it, or change type (PerAllocSystem)",
        ));
        assert_eq!(printed(&spec(&[("type", json!(kind)), ("groups.0.volumes", own.clone())])), wanted, "{kind}");
    }
    assert_eq!(
        printed(&spec(&[("groups.0.update.canary", json!(1)), ("groups.0.volumes", own)])),
        [
            "spec.groups[0].volumes[0].perAlloc: and update.canary exclude each other: a canary would need the volume of the allocation beside it; set canary to 0, or share the volume (PerAllocCanary)"
        ]
    );
}

#[test]
fn a_long_value_is_shown_by_its_first_64_characters() {
    let scale = |name: &str| printed(&spec(&[("scale", json!({ "group": name }))]));
    let said =
        |shown: &str| format!("spec.scale.group: {shown} is none of the job's groups; correct the name (ScaleGroup)");
    let whole = "ü".repeat(64);
    assert_eq!(scale(&whole), [said(&whole)]);
    assert_eq!(scale(&(whole.clone() + "ü")), [said(&format!("{whole}…"))]);
}

#[test]
fn after_a_thousand_violations_the_rest_is_counted() {
    let spreads = |count: usize| json!(vec![json!({ "attribute": "" }); count]);
    let found = printed(&spec(&[("spreads", spreads(1000))]));
    assert_eq!((found.len(), found[999].starts_with("spec.spreads[999].attribute")), (1000, true));
    let found = printed(&spec(&[("spreads", spreads(1002))]));
    assert_eq!(found.len(), 1001);
    assert_eq!(found[1000], "spec: has 2 more violations; mend these first (TooManyViolations)");
}

#[test]
fn a_stored_job_refuses_changes_with_what_to_do_instead() {
    let job = |changes: &[(&str, Value)]| -> JobSpec { serde_json::from_value(spec(changes)).unwrap() };
    let batch = ("type", json!("batch"));
    let plain = job(std::slice::from_ref(&batch));
    let periodic = job(&[batch.clone(), ("periodic.crons", json!(["@daily"]))]);
    let parameterized = job(&[batch.clone(), ("parameterized", json!({}))]);
    let child = job(&[batch.clone(), ("dispatch", json!({ "parent": "p" })), ("meta", json!({ "a": "1" }))]);
    let other = job(&[batch.clone(), ("dispatch", json!({ "parent": "q" })), ("meta", json!({ "a": "2" }))]);
    let (service, sysbatch) = (job(&[]), job(&[("type", json!("sysbatch"))]));
    for (stored, submitted, messages) in [
        (
            Some(&service),
            &plain,
            vec![
                "spec.type: cannot be changed from service to batch; delete the job and create it again (TypeChanged)",
            ],
        ),
        (
            Some(&plain),
            &sysbatch,
            vec![
                "spec.type: cannot be changed from batch to sysbatch; delete the job and create it again (TypeChanged)",
            ],
        ),
        (
            Some(&plain),
            &periodic,
            vec!["spec.periodic: cannot be added; delete the job and create it again (PeriodicChanged)"],
        ),
        (
            Some(&periodic),
            &plain,
            vec!["spec.periodic: cannot be removed; delete the job and create it again (PeriodicChanged)"],
        ),
        (
            Some(&plain),
            &parameterized,
            vec!["spec.parameterized: cannot be added; delete the job and create it again (ParameterizedChanged)"],
        ),
        (
            Some(&periodic),
            &parameterized,
            vec![
                "spec.periodic: cannot be removed; delete the job and create it again (PeriodicChanged)",
                "spec.parameterized: cannot be added; delete the job and create it again (ParameterizedChanged)",
            ],
        ),
        (
            Some(&child),
            &other,
            vec![
                "spec.dispatch: was set by drover when the job was dispatched and cannot be changed; leave it as it is (DispatchedReadOnly)",
                "spec.meta: is what the job was dispatched with and cannot be changed; create another job for another dispatch (DispatchedReadOnly)",
            ],
        ),
        (
            None,
            &child,
            vec![
                "spec.dispatch: is for a dispatch of a parameterized job, which has that job's groups; remove it, or spec.groups (DispatchedReadOnly)",
            ],
        ),
        (None, &periodic, vec![]),
        (Some(&child), &child, vec![]),
    ] {
        let found: Vec<String> = changes(stored, submitted).iter().map(ToString::to_string).collect();
        assert_eq!(found, messages);
    }
}

#[test]
fn warnings_say_what_to_write_instead() {
    let plain_task = json!([{ "name": "t", "driver": "mock" }]);
    let rows: Vec<Row> = rows! {
        { "groups.0.count": 2, "update.maxParallel": 3 } => [
            "spec.groups[0].update.maxParallel: 3 is above count 2: all are replaced at once; lower it (MaxParallelAboveCount)",
        ];
        { "groups.0.count": 1, "update.maxParallel": 3 } => [];
        { "groups.0.maxClientDisconnect": "1h", "groups.0.stopAfterClientDisconnect": "1h", "groups.0.preventRescheduleOnLost": false } => [
            "spec.groups[0].maxClientDisconnect: is an old form and ignored; write disconnect.lostAfter (OldDisconnect)",
            "spec.groups[0].stopAfterClientDisconnect: is an old form that only the node acts on; write disconnect.stopOnClientAfter (OldDisconnect)",
            "spec.groups[0].preventRescheduleOnLost: is an old form and ignored; write disconnect.replace (OldDisconnect)",
        ];
        { "groups.0.networks": [{ "mbits": 10 }, {}, { "mbits": 0 }] } => [
            "spec.groups[0].networks[0].mbits: is not enforced; remove it (Mbits)",
            "spec.groups[0].networks[2].mbits: is not enforced; remove it (Mbits)",
        ];
        { "type": "batch", "periodic.cron": "@daily" } => ["spec.periodic.cron: is the old form for one expression; write crons: [...] (OldCron)"];
    };
    for (changes, messages) in rows {
        let typed: JobSpec = serde_json::from_value(spec(&changes)).unwrap();
        let found: Vec<String> = warnings(&Definition::new(&typed, "j")).iter().map(ToString::to_string).collect();
        assert_eq!(found, messages, "{changes:?}");
    }
    let promotes = |first: Value, second: Value| {
        let group = |name: &str, update: Value| json!({ "name": name, "update": update, "tasks": plain_task });
        let groups = json!([group("g", first), group("h", second)]);
        let typed: JobSpec = serde_json::from_value(spec(&[("groups", groups)])).unwrap();
        warnings(&Definition::new(&typed, "j")).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let by_itself = json!({ "canary": 1, "autoPromote": true });
    let by_hand = json!({ "canary": 1, "autoPromote": false });
    let said = "spec.groups: promote by themselves in some groups with canaries only: they wait for the others; set autoPromote in all or none (AutoPromoteSome)";
    assert_eq!(promotes(by_itself.clone(), by_hand.clone()), [said]);
    assert_eq!(promotes(by_itself.clone(), by_itself.clone()), [""; 0]);
    assert_eq!(promotes(by_itself, json!({ "canary": 0 })), [""; 0]);
    assert_eq!(promotes(by_hand.clone(), by_hand), [""; 0]);
}
