//! Every code with a spec that shows it and one just inside the limit that does not.

use std::time::{Duration, Instant};

use drover_api::JobSpec;
use drover_api::job::JobType;
use serde_json::{Value, json};

use super::*;
use crate::definition::Definition;

mod messages;
mod submission;
mod walk;

fn plain() -> Value {
    json!({ "groups": [{ "name": "g", "count": 1, "tasks": [{ "name": "t", "driver": "mock" }] }] })
}

/// A plain spec with these fields set; an object that is not there on the way is made.
fn spec(changes: &[(&str, Value)]) -> Value {
    let mut spec = plain();
    for (path, value) in changes {
        let mut here = &mut spec;
        for part in path.split('.') {
            here = match part.parse::<usize>() {
                Ok(n) => {
                    if here.is_null() {
                        *here = json!([]);
                    }
                    let items = here.as_array_mut().unwrap();
                    while items.len() <= n {
                        items.push(Value::Null);
                    }
                    &mut items[n]
                }
                Err(_) => &mut here[part],
            };
        }
        *here = value.clone();
    }
    spec
}

/// All that is wrong with a spec, as `drover job validate` finds it.
fn judge(spec: &Value) -> Vec<Violation> {
    let mut found = shape("Job", &json!({ "spec": spec }));
    if let Ok(typed) = serde_json::from_value::<JobSpec>(spec.clone()) {
        found.extend(violations(&Definition::new(&typed, "j")));
    } else {
        assert!(!found.is_empty(), "no violation of the shape, and no spec: {spec}");
    }
    found
}

fn codes(changes: &[(&str, Value)]) -> Vec<&'static str> {
    judge(&spec(changes)).into_iter().map(|violation| violation.code).collect()
}

/// A code, a spec that has it, and one just inside that has no violation at all.
struct Row {
    code: &'static str,
    wrong: Vec<(&'static str, Value)>,
    inside: Vec<(&'static str, Value)>,
}

macro_rules! rows {
    ($( $code:literal: { $($wrong:literal : $wrong_value:tt),* } not { $($inside:literal : $inside_value:tt),* } ; )*) => {
        vec![$( Row {
            code: $code,
            wrong: vec![$( ($wrong, json!($wrong_value)) ),*],
            inside: vec![$( ($inside, json!($inside_value)) ),*],
        } ),*]
    };
}

fn job_rows() -> Vec<Row> {
    rows! {
        "JobIdSpace": { "id": "a b" } not { "id": "a_b" };
        "JobIdNul": { "id": "a\u{0}b" } not { "id": "A/b" };
        "JobNameNul": { "name": "a\u{0}" } not { "name": "a b" };
        "TypeMissing": { "type": "" } not { "type": "service" };
        "TypeInvalid": { "type": "daemon" } not { "type": "sysbatch" };
        "TypeCore": { "type": "_core" } not { "type": "system" };
        "DatacentersMissing": { "datacenters": [] } not { "datacenters": ["*"] };
        "DatacenterEmpty": { "datacenters": ["dc1", ""] } not { "datacenters": ["dc1"] };
        "GroupsMissing": { "groups": [] } not {};
        "GroupNameMissing": { "groups.0.name": "" } not { "groups.0.name": "a" };
        "GroupNameNul": { "groups.0.name": "a\u{0}" } not { "groups.0.name": "a" };
        "GroupDuplicate": { "groups.1": { "name": "g", "tasks": [{ "name": "t", "driver": "mock" }] } }
            not { "groups.1": { "name": "h", "tasks": [{ "name": "t", "driver": "mock" }] } };
        "PriorityRange": { "priority": 101 } not { "priority": 100 };
        "PriorityRange": { "priority": 0 } not { "priority": 1 };
        "CountNegative": { "groups.0.count": (-1) } not { "groups.0.count": 0 };
        "CountTotal": { "groups.0.count": 50_001 } not { "groups.0.count": 50_000 };
        "SystemCount": { "type": "system", "groups.0.count": 2 } not { "type": "system", "groups.0.count": 1 };
        "SystemAffinity": { "type": "system", "affinities": [{ "lTarget": "${meta.a}", "rTarget": "b" }] }
            not { "type": "sysbatch", "affinities": [{ "lTarget": "${meta.a}", "rTarget": "b" }] };
        "SystemAffinity": { "type": "system", "groups.0.tasks.0.affinities": [{ "lTarget": "${meta.a}", "rTarget": "b" }] }
            not { "groups.0.tasks.0.affinities": [{ "lTarget": "${meta.a}", "rTarget": "b" }] };
        "SystemSpread": { "type": "system", "groups.0.spreads": [{ "attribute": "${meta.a}" }] }
            not { "type": "service", "groups.0.spreads": [{ "attribute": "${meta.a}" }] };
        "SystemCanary": { "type": "system", "update.canary": 101 } not { "type": "system", "update.canary": 100 };
        "RescheduleForbidden": { "type": "system", "groups.0.reschedule": {} } not { "type": "batch", "groups.0.reschedule": {} };
        "TemplateRolling": { "update.maxParallel": 0, "groups.0.tasks.0.secrets": [{ "name": "db", "path": "db" }], "groups.0.tasks.0.templates": [{ "destPath": "local/a", "embeddedTmpl": "x", "rolling": true }] } not { "groups.0.tasks.0.secrets": [{ "name": "db", "path": "db" }], "groups.0.tasks.0.templates": [{ "destPath": "local/a", "embeddedTmpl": "x", "rolling": true }] };
        "TemplateRolling": { "type": "batch", "groups.0.tasks.0.secrets": [{ "name": "db", "path": "db" }], "groups.0.tasks.0.templates": [{ "destPath": "local/a", "embeddedTmpl": "x", "rolling": true }] } not { "type": "system", "groups.0.tasks.0.secrets": [{ "name": "db", "path": "db" }], "groups.0.tasks.0.templates": [{ "destPath": "local/a", "embeddedTmpl": "x", "rolling": true }] };
        "UpdateForbidden": { "type": "batch", "update": {} } not { "type": "system", "update": {} };
        "UpdateForbidden": { "type": "sysbatch", "groups.0.update": {} } not { "groups.0.update": {} };
        "MigrateForbidden": { "type": "batch", "groups.0.migrate": {} } not { "groups.0.migrate": {} };
        "SpecTooLarge": { "groups.0.tasks.0.config.x": "SIZED" } not { "groups.0.tasks.0.config.x": "y" };
    }
}

fn task_rows() -> Vec<Row> {
    rows! {
        "TasksMissing": { "groups.0.tasks": [] } not {};
        "TaskDuplicate": { "groups.0.tasks.1": { "name": "t", "driver": "mock" } }
            not { "groups.0.tasks.1": { "name": "u", "driver": "mock" } };
        "TaskNameMissing": { "groups.0.tasks.0.name": "" } not { "groups.0.tasks.0.name": "a" };
        "LeaderMultiple": { "groups.0.tasks.0.leader": true, "groups.0.tasks.1": { "name": "u", "driver": "mock", "leader": true } }
            not { "groups.0.tasks.0.leader": true, "groups.0.tasks.1": { "name": "u", "driver": "mock" } };
        "MainTaskMissing": { "groups.0.tasks.0.lifecycle": { "hook": "prestart" } }
            not { "groups.0.tasks.1": { "name": "u", "driver": "mock", "lifecycle": { "hook": "prestart" } } };
        "TaskNameReserved": { "groups.0.tasks.0.name": "alloc" } not { "groups.0.tasks.0.name": "alloc2" };
        "TaskNameSlash": { "groups.0.tasks.0.name": "a/b" } not { "groups.0.tasks.0.name": "a-b" };
        "TaskNameSlash": { "groups.0.tasks.0.name": "a\\b" } not { "groups.0.tasks.0.name": "ab" };
        "TaskNameNul": { "groups.0.tasks.0.name": "a\u{0}" } not { "groups.0.tasks.0.name": "a" };
        "DriverMissing": { "groups.0.tasks.0.driver": "" } not { "groups.0.tasks.0.driver": "exec" };
        "LogLimits": { "groups.0.tasks.0.logs.maxFiles": 0 } not { "groups.0.tasks.0.logs.maxFiles": 1 };
        "LogLimits": { "groups.0.tasks.0.logs.maxFileSizeMB": 0 } not { "groups.0.tasks.0.logs.maxFileSizeMB": 1 };
        "LogDisk": { "groups.0.tasks.0.logs.maxFiles": 30 } not { "groups.0.tasks.0.logs.maxFiles": 29 };
        "KillTimeoutNegative": { "groups.0.tasks.0.killTimeout": "-1s" } not { "groups.0.tasks.0.killTimeout": "0s" };
        "KillTimeoutTooLong": { "groups.0.tasks.0.killTimeout": "601s" } not { "groups.0.tasks.0.killTimeout": "600s" };
        "KillTimeoutTooLong": { "groups.0.tasks.0.killTimeout": "601s" } not { "type": "batch", "groups.0.tasks.0.killTimeout": "601s" };
        "ShutdownDelayNegative": { "groups.0.tasks.0.shutdownDelay": "-1s" } not { "groups.0.tasks.0.shutdownDelay": "0s" };
        "ShutdownDelayNegative": { "groups.0.shutdownDelay": "-1ns" } not { "groups.0.shutdownDelay": "0s" };
        "CpuAndCores": { "groups.0.tasks.0.resources": { "cpu": 1, "cores": 1 } } not { "groups.0.tasks.0.resources": { "cores": 1 } };
        "CoresNegative": { "groups.0.tasks.0.resources.cores": (-1) } not { "groups.0.tasks.0.resources.cores": 0 };
        "CpuMin": { "groups.0.tasks.0.resources.cpu": 0 } not { "groups.0.tasks.0.resources.cpu": 1 };
        "MemMin": { "groups.0.tasks.0.resources.memoryMB": 9 } not { "groups.0.tasks.0.resources.memoryMB": 10 };
        "TaskDisk": { "groups.0.tasks.0.resources.diskMB": 10 } not { "groups.0.ephemeralDisk.sizeMB": 101 };
        "DiskMin": { "groups.0.ephemeralDisk.sizeMB": 9, "groups.0.tasks.0.logs": { "maxFiles": 1, "maxFileSizeMB": 1 } }
            not { "groups.0.ephemeralDisk.sizeMB": 10, "groups.0.tasks.0.logs": { "maxFiles": 1, "maxFileSizeMB": 9 } };
        "MemMaxBelowMem": { "groups.0.tasks.0.resources.memoryMaxMB": 299 } not { "groups.0.tasks.0.resources.memoryMaxMB": 300 };
        "MemMaxBelowMem": { "groups.0.tasks.0.resources.memoryMaxMB": (-2) } not { "groups.0.tasks.0.resources.memoryMaxMB": (-1) };
        "SecretsMem": { "groups.0.tasks.0.resources.secretsMB": 301 } not { "groups.0.tasks.0.resources.secretsMB": 300 };
        "SecretsMem": { "groups.0.tasks.0.resources.secretsMB": (-1) } not { "groups.0.tasks.0.resources.secretsMB": 0 };
        "MaxRunDuration": { "type": "batch", "groups.0.maxRunDuration": "0s" } not { "type": "batch", "groups.0.maxRunDuration": "1ns" };
        "MaxRunDuration": { "groups.0.maxRunDuration": "1s" } not { "type": "sysbatch", "groups.0.maxRunDuration": "1s" };
        "ServiceDuplicate": { "groups.0.services": [{ "name": "s", "task": "t" }], "groups.0.tasks.0.services": [{ "name": "s" }] }
            not { "groups.0.services": [{ "name": "s", "task": "t" }], "groups.0.tasks.0.services": [{ "name": "s", "portLabel": "p" }] };
    }
}

fn policy_rows() -> Vec<Row> {
    rows! {
        "UpdateHealthCheck": { "update.healthCheck": "ping" } not { "update.healthCheck": "manual" };
        "UpdateMaxParallel": { "update.maxParallel": (-1) } not { "update.maxParallel": 0 };
        "UpdateCanary": { "update.canary": (-1) } not { "update.canary": 0 };
        "AutoPromoteNoCanary": { "update.autoPromote": true } not { "update.autoPromote": true, "groups.0.update.canary": 1 };
        "MinHealthy": { "update.minHealthyTime": "5m" } not { "update.minHealthyTime": "299s" };
        "MinHealthy": { "update.minHealthyTime": "-1s" } not { "update.minHealthyTime": "0s" };
        "HealthyDeadline": { "update.healthyDeadline": "10m" } not { "update.healthyDeadline": "599s" };
        "HealthyDeadline": { "update.healthyDeadline": "0s" } not { "update.healthyDeadline": "11s" };
        "HealthyDeadline": { "update.healthyDeadline": "20m" } not { "update": { "healthyDeadline": "20m", "progressDeadline": "0s" } };
        "ProgressDeadline": { "update.progressDeadline": "-1s" } not { "update.progressDeadline": "0s" };
        "Stagger": { "update.stagger": "0s" } not { "update.stagger": "1ns" };
        "MigrateHealthCheck": { "groups.0.migrate.healthCheck": "manual" } not { "groups.0.migrate.healthCheck": "checks" };
        "MigrateHealthCheck": { "groups.0.migrate.healthCheck": "" } not { "groups.0.migrate.healthCheck": "task_states" };
        "MigrateMaxParallel": { "groups.0.migrate.maxParallel": (-1) } not { "groups.0.migrate.maxParallel": 0 };
        "MigrateTimes": { "groups.0.migrate.minHealthyTime": "301s" } not { "groups.0.migrate.minHealthyTime": "300s" };
        "MigrateTimes": { "groups.0.migrate.minHealthyTime": "-1s" } not { "groups.0.migrate.minHealthyTime": "0s" };
        "MigrateTimes": { "groups.0.migrate": { "minHealthyTime": "0s", "healthyDeadline": "-1s" } }
            not { "groups.0.migrate": { "minHealthyTime": "0s", "healthyDeadline": "0s" } };
        "RestartMode": { "groups.0.restart.mode": "never" } not { "groups.0.restart.mode": "delay" };
        "RestartAmbiguous": { "groups.0.restart": { "attempts": 0, "mode": "delay" } } not { "groups.0.restart": { "attempts": 0, "mode": "fail" } };
        "RestartInterval": { "groups.0.restart": { "interval": "4999ms", "attempts": 0 } } not { "groups.0.restart": { "interval": "5s", "attempts": 0 } };
        "RestartImpossible": { "groups.0.restart": { "attempts": 3, "delay": "10s", "interval": "29s" } }
            not { "groups.0.restart": { "attempts": 3, "delay": "10s", "interval": "30s" } };
        "RestartImpossible": { "groups.0.tasks.0.restart.attempts": 121 } not { "groups.0.tasks.0.restart.attempts": 120 };
        "RescheduleAttemptsInterval": { "groups.0.reschedule.attempts": 1 } not { "groups.0.reschedule": { "attempts": 1, "interval": "1h" } };
        "RescheduleAmbiguous": { "groups.0.reschedule": { "attempts": 1, "unlimited": true } } not { "groups.0.reschedule": { "attempts": 0, "unlimited": true } };
        "RescheduleDelay": { "groups.0.reschedule.delay": "4999ms" } not { "groups.0.reschedule.delay": "5s" };
        "RescheduleFunction": { "groups.0.reschedule.delayFunction": "linear" } not { "groups.0.reschedule.delayFunction": "fibonacci" };
        "RescheduleMaxDelay": { "groups.0.reschedule.maxDelay": "29s" } not { "groups.0.reschedule.maxDelay": "30s" };
        "RescheduleMaxDelay": { "groups.0.reschedule": { "delay": "5s", "maxDelay": "4s" } }
            not { "groups.0.reschedule": { "delay": "5s", "maxDelay": "4s", "delayFunction": "constant" } };
        "RescheduleInterval": { "groups.0.reschedule": { "attempts": 1, "delay": "5s", "interval": "14s" } }
            not { "groups.0.reschedule": { "attempts": 1, "delay": "5s", "interval": "15s" } };
        "RescheduleImpossible": { "groups.0.reschedule": { "attempts": 4, "delay": "20s", "interval": "1m", "delayFunction": "constant" } }
            not { "groups.0.reschedule": { "attempts": 3, "delay": "20s", "interval": "1m", "delayFunction": "constant" } };
        "RescheduleDelay": { "groups.0.reschedule": { "delay": "1s" } } not { "groups.0.reschedule": { "delay": "1s", "unlimited": false } };
        "DisconnectLostNegative": { "groups.0.disconnect.lostAfter": "-1s" } not { "groups.0.disconnect.lostAfter": "0s" };
        "DisconnectStopNegative": { "groups.0.disconnect.stopOnClientAfter": "-1s" } not { "groups.0.disconnect.stopOnClientAfter": "0s" };
        "DisconnectBoth": { "groups.0.disconnect": { "stopOnClientAfter": "0s", "lostAfter": "1s" } }
            not { "groups.0.disconnect": { "stopOnClientAfter": "0s", "lostAfter": "0s" } };
        "DisconnectStopType": { "type": "system", "groups.0.disconnect.stopOnClientAfter": "1s" } not { "type": "batch", "groups.0.disconnect.stopOnClientAfter": "1s" };
        "DisconnectReconcile": { "groups.0.disconnect.reconcile": "best" } not { "groups.0.disconnect.reconcile": "longest_running" };
    }
}

fn placement_rows() -> Vec<Row> {
    rows! {
        "ConstraintOperand": { "constraints": [{ "lTarget": "a", "operand": "~", "rTarget": "b" }] } not { "constraints": [{ "lTarget": "a", "operand": "is", "rTarget": "b" }] };
        "ConstraintLTarget": { "constraints": [{ "rTarget": "b" }] } not { "constraints": [{ "operand": "distinct_hosts" }] };
        "ConstraintTarget": { "groups.0.constraints": [{ "lTarget": "${node.region}", "rTarget": "b" }] }
            not { "groups.0.constraints": [{ "lTarget": "${node.unique.name}", "rTarget": "b" }] };
        "ConstraintTarget": { "groups.0.constraints": [{ "lTarget": "$attr.a", "rTarget": "b" }] } not { "groups.0.affinities": [{ "lTarget": "$attr.a", "rTarget": "b" }] };
        "ConstraintRTarget": { "constraints": [{ "lTarget": "${meta.a}", "operand": "<" }] } not { "constraints": [{ "lTarget": "${meta.a}", "operand": "<", "rTarget": "1" }] };
        "ConstraintRTarget": { "constraints": [{ "lTarget": "${meta.a}", "operand": "set_contains_any" }] } not { "constraints": [{ "lTarget": "${meta.a}", "operand": "is_set" }] };
        "ConstraintRTarget": { "constraints": [{ "lTarget": "${meta.a}", "operand": "is_not_set", "rTarget": "1" }] } not { "constraints": [{ "lTarget": "${meta.a}", "operand": "is_not_set" }] };
        "ConstraintRegexp": { "constraints": [{ "lTarget": "${meta.a}", "operand": "regexp", "rTarget": "(" }] } not { "constraints": [{ "lTarget": "${meta.a}", "operand": "regexp", "rTarget": "[(]" }] };
        "ConstraintVersion": { "constraints": [{ "lTarget": "${meta.a}", "operand": "version", "rTarget": ">= x" }] } not { "constraints": [{ "lTarget": "${meta.a}", "operand": "version", "rTarget": "~> 1.2" }] };
        "ConstraintSemver": { "constraints": [{ "lTarget": "${meta.a}", "operand": "semver", "rTarget": "~> 1.2" }] } not { "constraints": [{ "lTarget": "${meta.a}", "operand": "semver", "rTarget": ">= 1.2" }] };
        "DistinctPropertyCount": { "constraints": [{ "lTarget": "${meta.a}", "operand": "distinct_property", "rTarget": "0" }] } not { "constraints": [{ "lTarget": "${meta.a}", "operand": "distinct_property", "rTarget": "1" }] };
        "DistinctAtTask": { "groups.0.tasks.0.constraints": [{ "operand": "distinct_hosts" }] } not { "groups.0.constraints": [{ "operand": "distinct_hosts" }] };
        "ConstraintTarget": { "groups.0.tasks.0.resources.devices": [{ "name": "gpu", "constraints": [{ "lTarget": "${device}", "rTarget": "b" }] }] }
            not { "groups.0.tasks.0.resources.devices": [{ "name": "gpu", "constraints": [{ "lTarget": "${device.attr.memory}", "operand": ">", "rTarget": "1 GiB" }] }] };
        "AffinityWeight": { "affinities": [{ "lTarget": "a", "rTarget": "b", "weight": 101 }] } not { "affinities": [{ "lTarget": "a", "rTarget": "b", "weight": 100 }] };
        "AffinityWeight": { "affinities": [{ "lTarget": "a", "rTarget": "b", "weight": 0 }] } not { "affinities": [{ "lTarget": "a", "rTarget": "b", "weight": (-100) }] };
        "AffinityOperand": { "affinities": [{ "lTarget": "a", "operand": "is_set" }] } not { "affinities": [{ "lTarget": "a", "operand": "regexp", "rTarget": "a" }] };
        "SpreadAttribute": { "spreads": [{ "attribute": "" }] } not { "spreads": [{ "attribute": "${meta.a}" }] };
        "SpreadWeight": { "spreads": [{ "attribute": "a", "weight": 101 }] } not { "spreads": [{ "attribute": "a", "weight": 100 }] };
        "SpreadWeight": { "spreads": [{ "attribute": "a", "weight": 0 }] } not { "spreads": [{ "attribute": "a", "weight": 1 }] };
        "SpreadTarget": { "spreads": [{ "attribute": "a", "targets": [{ "value": "x" }, { "value": "x" }] }] } not { "spreads": [{ "attribute": "a", "targets": [{ "value": "x" }, { "value": "y" }] }] };
        "SpreadTarget": { "spreads": [{ "attribute": "a", "targets": [{ "value": "x", "percent": 101 }] }] } not { "spreads": [{ "attribute": "a", "targets": [{ "value": "x", "percent": 100 }] }] };
        "SpreadTarget": { "spreads": [{ "attribute": "a", "targets": [{ "value": "x", "percent": 60 }, { "value": "y", "percent": 41 }] }] }
            not { "spreads": [{ "attribute": "a", "targets": [{ "value": "x", "percent": 60 }, { "value": "y", "percent": 40 }] }] };
    }
}

fn network_and_volume_rows() -> Vec<Row> {
    rows! {
        "PortLabelDuplicate": { "groups.0.networks": [{ "ports": [{ "label": "a" }] }, { "ports": [{ "label": "a" }] }] }
            not { "groups.0.networks": [{ "ports": [{ "label": "a" }] }, { "ports": [{ "label": "b" }] }] };
        "StaticPortDuplicate": { "groups.0.networks": [{ "ports": [{ "label": "a", "static": 80 }, { "label": "b", "static": 80 }] }] }
            not { "groups.0.networks": [{ "ports": [{ "label": "a", "static": 80 }, { "label": "b", "static": 80, "hostNetwork": "public" }, { "label": "c", "static": 80, "ignoreCollision": true }] }] };
        "PortRange": { "groups.0.networks": [{ "ports": [{ "label": "a", "static": 65_536 }] }] } not { "groups.0.networks": [{ "ports": [{ "label": "a", "static": 65_535 }] }] };
        "PortTo": { "groups.0.networks": [{ "ports": [{ "label": "a", "to": (-2) }] }] } not { "groups.0.networks": [{ "ports": [{ "label": "a", "to": (-1) }] }] };
        "PortTo": { "groups.0.networks": [{ "ports": [{ "label": "a", "to": 65_536 }] }] } not { "groups.0.networks": [{ "ports": [{ "label": "a", "to": 65_535 }] }] };
        "IgnoreCollisionMode": { "groups.0.networks": [{ "mode": "bridge", "ports": [{ "label": "a", "static": 80, "ignoreCollision": true }] }] }
            not { "groups.0.networks": [{ "mode": "host", "ports": [{ "label": "a", "static": 80, "ignoreCollision": true }] }] };
        "Hostname": { "groups.0.networks": [{ "mode": "bridge", "hostname": "a_b" }] } not { "groups.0.networks": [{ "mode": "bridge", "hostname": "a-b.example" }] };
        "Hostname": { "groups.0.networks": [{ "mode": "bridge", "hostname": "-a" }] } not { "groups.0.networks": [{ "mode": "bridge", "hostname": "a_${NOMAD_ALLOC_INDEX}" }] };
        "VolumeType": { "groups.0.volumes": [{ "name": "v", "type": "nfs", "source": "s" }] } not { "groups.0.volumes": [{ "name": "v", "type": "host", "source": "s" }] };
        "VolumeSource": { "groups.0.volumes": [{ "name": "v", "type": "host", "source": "" }] } not { "groups.0.volumes": [{ "name": "v", "type": "host", "source": "s" }] };
        "PerAllocSystem": { "type": "system", "groups.0.volumes": [{ "name": "v", "type": "host", "source": "s", "perAlloc": true }] }
            not { "type": "batch", "groups.0.volumes": [{ "name": "v", "type": "host", "source": "s", "perAlloc": true }] };
        "PerAllocCanary": { "update.canary": 1, "groups.0.volumes": [{ "name": "v", "type": "host", "source": "s", "perAlloc": true }] }
            not { "update.canary": 0, "groups.0.volumes": [{ "name": "v", "type": "host", "source": "s", "perAlloc": true }] };
        "PerAllocSticky": { "groups.0.volumes": [{ "name": "v", "type": "host", "source": "s", "perAlloc": true, "sticky": true }] }
            not { "groups.0.volumes": [{ "name": "v", "type": "host", "source": "s", "sticky": true }] };
        "HostVolumeMount": { "groups.0.volumes": [{ "name": "v", "type": "host", "source": "s", "mountOptions": { "fsType": "ext4" } }] }
            not { "groups.0.volumes": [{ "name": "v", "type": "host", "source": "s", "accessMode": "single-node-multi-writer" }] };
        "HostVolumeMount": { "groups.0.volumes": [{ "name": "v", "type": "host", "source": "s", "accessMode": "single-node-reader" }] }
            not { "groups.0.volumes": [{ "name": "v", "type": "host", "source": "s", "accessMode": "single-node-reader", "readOnly": true }] };
        "HostVolumeMount": { "groups.0.volumes": [{ "name": "v", "type": "host", "source": "s", "accessMode": "multi-node-multi-writer" }] }
            not { "groups.0.volumes": [{ "name": "v", "type": "host", "source": "s", "accessMode": "single-node-writer" }] };
        "CsiAttachment": { "groups.0.volumes": [{ "name": "v", "type": "csi", "source": "s", "accessMode": "single-node-writer" }] }
            not { "groups.0.volumes": [{ "name": "v", "type": "csi", "source": "s", "accessMode": "single-node-writer", "attachmentMode": "block-device" }] };
        "CsiAttachment": { "groups.0.volumes": [{ "name": "v", "type": "csi", "source": "s", "accessMode": "single-node-writer", "attachmentMode": "block-device", "mountOptions": {} }] }
            not { "groups.0.volumes": [{ "name": "v", "type": "csi", "source": "s", "accessMode": "single-node-writer", "attachmentMode": "file-system", "mountOptions": {} }] };
        "MountFlagSecret": { "groups.0.volumes": [{ "name": "v", "type": "csi", "source": "s", "accessMode": "single-node-writer", "attachmentMode": "file-system", "mountOptions": { "mountFlags": ["Password=x"] } }] }
            not { "groups.0.volumes": [{ "name": "v", "type": "csi", "source": "s", "accessMode": "single-node-writer", "attachmentMode": "file-system", "mountOptions": { "mountFlags": ["passwords=x", "noatime", "credentials=/etc/smb"] } }] };
        "CsiAccess": { "groups.0.volumes": [{ "name": "v", "type": "csi", "source": "s", "attachmentMode": "file-system" }] }
            not { "groups.0.volumes": [{ "name": "v", "type": "csi", "source": "s", "accessMode": "multi-node-multi-writer", "attachmentMode": "file-system" }] };
        "CsiReaderRO": { "groups.0.volumes": [{ "name": "v", "type": "csi", "source": "s", "accessMode": "multi-node-reader-only", "attachmentMode": "file-system" }] }
            not { "groups.0.volumes": [{ "name": "v", "type": "csi", "source": "s", "accessMode": "multi-node-reader-only", "attachmentMode": "file-system", "readOnly": true }] };
        "CsiSingle": { "groups.0.count": 2, "groups.0.volumes": [{ "name": "v", "type": "csi", "source": "s", "accessMode": "single-node-writer", "attachmentMode": "file-system" }] }
            not { "groups.0.count": 2, "groups.0.volumes": [{ "name": "v", "type": "csi", "source": "s", "accessMode": "single-node-writer", "attachmentMode": "file-system", "perAlloc": true }] };
        "CsiSingle": { "groups.0.count": 2, "groups.0.volumes": [{ "name": "v", "type": "csi", "source": "s", "accessMode": "multi-node-single-writer", "attachmentMode": "file-system" }] }
            not { "groups.0.count": 2, "groups.0.volumes": [{ "name": "v", "type": "csi", "source": "s", "accessMode": "multi-node-single-writer", "attachmentMode": "file-system", "readOnly": true }] };
        "NotSupportedYet": { "groups.0.volumes": [{ "name": "v", "type": "host", "source": "s" }], "groups.0.tasks.0.volumeMounts": [{ "volume": "v", "destination": "/v", "propagationMode": "host-to-task" }] }
            not { "groups.0.volumes": [{ "name": "v", "type": "host", "source": "s" }], "groups.0.tasks.0.volumeMounts": [{ "volume": "v", "destination": "/v", "propagationMode": "private" }] };
        "NotSupportedYet": { "groups.0.volumes": [{ "name": "v", "type": "host", "source": "s" }], "groups.0.tasks.0.volumeMounts": [{ "volume": "v", "destination": "/v", "selinuxLabel": "z" }] }
            not { "groups.0.volumes": [{ "name": "v", "type": "host", "source": "s" }], "groups.0.tasks.0.volumeMounts": [{ "volume": "v", "destination": "/v", "readOnly": true }] };
        "VolumeMountRef": { "groups.0.tasks.0.volumeMounts": [{ "volume": "v", "destination": "/v" }] }
            not { "groups.0.volumes": [{ "name": "v", "type": "host", "source": "s" }], "groups.0.tasks.0.volumeMounts": [{ "volume": "v", "destination": "/v" }] };
    }
}

fn schedule_rows() -> Vec<Row> {
    rows! {
        "PeriodicType": { "periodic.crons": ["0 3 * * *"] } not { "type": "batch", "periodic.crons": ["0 3 * * *"] };
        "PeriodicType": { "periodic.crons": ["0 3 * * *"] } not { "periodic.enabled": false };
        "PeriodicSpec": { "type": "batch", "periodic": {} } not { "type": "batch", "periodic.crons": ["@hourly"] };
        "PeriodicSpec": { "type": "batch", "periodic": { "cron": "0 3 * * *", "crons": ["0 3 * * *"] } } not { "type": "batch", "periodic.cron": "0 3 * * *" };
        "PeriodicSpec": { "type": "batch", "periodic.crons": ["0 25 * * *"] } not { "type": "batch", "periodic.crons": ["*/15 0-23 L * MON-FRI"] };
        "PeriodicSpec": { "type": "batch", "periodic.crons": ["0 0 3 * * *"] } not { "type": "batch", "periodic.crons": ["0 3 * * *"] };
        "PeriodicSpec": { "type": "batch", "periodic": { "crons": ["0 3 * * *"], "timeZone": "Europe/Atlantis" } }
            not { "type": "batch", "periodic": { "crons": ["0 3 * * *"], "timeZone": "Europe/Berlin" } };
        "PeriodicSpec": { "type": "batch", "periodic": { "crons": ["0 3 * * *"], "timeZone": "../UTC" } }
            not { "type": "batch", "periodic": { "crons": ["nonsense"], "enabled": false } };
        "ParameterizedType": { "parameterized": {} } not { "type": "sysbatch", "parameterized": {} };
        "ParamPayload": { "type": "batch", "parameterized.payload": "maybe" } not { "type": "batch", "parameterized.payload": "forbidden" };
        "ParamMeta": { "type": "batch", "parameterized": { "metaRequired": ["a"], "metaOptional": ["a"] } }
            not { "type": "batch", "parameterized": { "metaRequired": ["a"], "metaOptional": ["b"] } };
    }
}

#[test]
fn every_code_has_a_spec_that_shows_it_and_one_just_inside() {
    let rows = [job_rows(), task_rows(), policy_rows(), placement_rows(), network_and_volume_rows(), schedule_rows()];
    let mut wrong = Vec::new();
    for Row { code, wrong: mut changes, inside } in rows.into_iter().flatten() {
        for (_, value) in &mut changes {
            if value == "SIZED" {
                *value = json!("x".repeat(SPEC_LIMIT_BYTES));
            }
        }
        let found = judge(&spec(&changes));
        match found.iter().find(|violation| violation.code == code) {
            None => wrong.push(format!("{code} is not among {found:?}")),
            Some(violation) => {
                let has_remedy = [";", ":"].iter().any(|mark| violation.message.contains(mark));
                if !has_remedy || !violation.field.starts_with("spec.") && violation.field != "spec" {
                    wrong.push(format!("{code} says no field or no remedy: {violation}"));
                }
            }
        }
        let left: Vec<_> = codes(&inside).into_iter().filter(|code| *code != "NotSupportedYet").collect();
        if !left.is_empty() {
            wrong.push(format!("{code}: just inside still gives {left:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_plain_job_has_no_violation_and_no_warning() {
    for kind in JobType::ALL {
        assert_eq!(codes(&[("type", json!(kind))]), Vec::<&str>::new(), "{kind}");
        let spec = serde_json::from_value(spec(&[("type", json!(kind))])).unwrap();
        assert_eq!(warnings(&Definition::new(&spec, "j")), []);
    }
}

#[test]
fn all_violations_are_found_together() {
    let found = codes(&[
        ("id", json!("a b")),
        ("groups.0.count", json!(60_000)),
        ("constraints", json!([{ "lTarget": "${nod.x}", "operand": "regexp", "rTarget": "(" }])),
    ]);
    assert_eq!(found, ["FieldRange", "JobIdSpace", "CountTotal", "ConstraintTarget", "ConstraintRegexp"]);
}

#[test]
fn a_name_is_missing_only_without_the_objects_name() {
    let spec: JobSpec = serde_json::from_value(plain()).unwrap();
    let found: Vec<_> = violations(&Definition::new(&spec, "")).into_iter().map(|violation| violation.code).collect();
    assert_eq!(found, ["JobIdMissing", "JobNameMissing"]);
}

#[test]
fn an_inherited_restart_policy_is_judged_once() {
    assert_eq!(codes(&[("groups.0.restart.attempts", json!(1000))]), ["RestartImpossible"]);
    assert_eq!(
        codes(&[("groups.0.restart.attempts", json!(1000)), ("groups.0.tasks.0.restart.attempts", json!(999))]),
        ["RestartImpossible", "RestartImpossible"]
    );
}

/// V-069
#[test]
fn a_canary_has_no_volume_of_a_slots_own() {
    let volume = json!([{ "name": "v", "type": "csi", "source": "s", "accessMode": "single-node-writer",
        "attachmentMode": "file-system", "perAlloc": true }]);
    let with_canaries = |canary: i64| codes(&[("update.canary", json!(canary)), ("groups.0.volumes", volume.clone())]);
    assert_eq!(with_canaries(1), ["PerAllocCanary"]);
    assert_eq!(with_canaries(0), [""; 0]);
}

#[test]
fn s_183_stop_on_client_after_excludes_lost_after() {
    let both = ("groups.0.disconnect", json!({ "stopOnClientAfter": "1m", "lostAfter": "1m" }));
    assert_eq!(codes(&[both]), ["DisconnectBoth"]);
}

#[test]
fn s_184_blocks_and_counts_that_the_type_forbids() {
    assert_eq!(codes(&[("type", json!("system")), ("groups.0.count", json!(2))]), ["SystemCount"]);
    let spread = json!([{ "attribute": "${node.datacenter}" }]);
    assert_eq!(codes(&[("type", json!("system")), ("spreads", spread)]), ["SystemSpread"]);
    let update = json!({ "maxParallel": 1 });
    assert_eq!(codes(&[("type", json!("batch")), ("update", update)]), ["UpdateForbidden"]);
}

#[test]
fn s_185_the_minimum_must_be_shorter_than_the_deadline() {
    assert_eq!(codes(&[("update", json!({ "minHealthyTime": "10s", "healthyDeadline": "10s" }))]), ["MinHealthy"]);
}

#[test]
fn s_186_reschedules_that_the_interval_cannot_hold() {
    let policy = json!({ "delayFunction": "constant", "delay": "20s", "attempts": 5, "interval": "1m" });
    let found = judge(&spec(&[("groups.0.reschedule", policy)]));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].code, "RescheduleImpossible");
    assert_eq!(
        found[0].message,
        "5 reschedules do not fit into interval 1m: 3 do; lower attempts, or raise interval to at least 1m40s"
    );
}

#[test]
fn s_187_percents_above_100_and_a_weight_without_effect() {
    let targets = json!([{ "value": "r1", "percent": 60 }, { "value": "r2", "percent": 50 }]);
    assert_eq!(codes(&[("spreads", json!([{ "attribute": "${meta.rack}", "targets": targets }]))]), ["SpreadTarget"]);
    let affinity = json!([{ "lTarget": "${meta.rack}", "rTarget": "r1", "weight": 0 }]);
    assert_eq!(codes(&[("affinities", affinity)]), ["AffinityWeight"]);
}

#[test]
fn s_188_a_stored_job_keeps_its_type_and_its_sort() {
    let job = |changes: &[(&str, Value)]| -> JobSpec { serde_json::from_value(spec(changes)).unwrap() };
    let codes = |stored: &JobSpec, submitted: &JobSpec| -> Vec<&'static str> {
        changes(Some(stored), submitted).into_iter().map(|violation| violation.code).collect()
    };
    let (service, batch) = (job(&[]), job(&[("type", json!("batch"))]));
    assert_eq!(codes(&service, &batch), ["TypeChanged"]);
    assert_eq!(codes(&service, &service), Vec::<&str>::new());
    let periodic = job(&[("type", json!("batch")), ("periodic.crons", json!(["@daily"]))]);
    assert_eq!(codes(&batch, &periodic), ["PeriodicChanged"]);
    assert_eq!(codes(&periodic, &batch), ["PeriodicChanged"]);
    let parameterized = job(&[("type", json!("batch")), ("parameterized", json!({}))]);
    assert_eq!(codes(&batch, &parameterized), ["ParameterizedChanged"]);
    let child = job(&[("type", json!("batch")), ("dispatch", json!({ "parent": "p", "payload": "eA==" }))]);
    assert_eq!(codes(&batch, &child), ["DispatchedReadOnly", "PayloadOnSubmit"]);
    assert_eq!(codes(&child, &child), Vec::<&str>::new());
    assert_eq!(codes(&child, &batch), ["DispatchedReadOnly"]);
    let alone: Vec<_> = changes(None, &child).into_iter().map(|violation| violation.code).collect();
    assert_eq!(alone, ["DispatchedReadOnly", "PayloadOnSubmit"]);
}

#[test]
fn warnings_name_what_is_accepted_and_probably_not_meant() {
    for (code, change) in [
        ("MaxParallelAboveCount", vec![("groups.0.count", json!(2)), ("update.maxParallel", json!(3))]),
        (
            "AutoPromoteSome",
            vec![
                ("groups.0.update", json!({ "canary": 1, "autoPromote": true })),
                (
                    "groups.1",
                    json!({ "name": "h", "update": { "canary": 1 }, "tasks": [{ "name": "t", "driver": "mock" }] }),
                ),
            ],
        ),
        ("OldDisconnect", vec![("groups.0.maxClientDisconnect", json!("1h"))]),
        ("OldDisconnect", vec![("groups.0.stopAfterClientDisconnect", json!("1h"))]),
        ("OldDisconnect", vec![("groups.0.preventRescheduleOnLost", json!(true))]),
        ("Mbits", vec![("groups.0.networks", json!([{ "mbits": 10 }]))]),
        ("OldCron", vec![("type", json!("batch")), ("periodic.cron", json!("@daily"))]),
    ] {
        let spec = serde_json::from_value(spec(&change)).unwrap();
        let found: Vec<_> = warnings(&Definition::new(&spec, "j")).into_iter().map(|warning| warning.code).collect();
        assert_eq!(found, [code]);
    }
    for quiet in [
        vec![("update.maxParallel", json!(3))],
        vec![("groups.0.count", json!(3)), ("update.maxParallel", json!(3))],
        vec![("groups.0.update", json!({ "canary": 1, "autoPromote": true }))],
    ] {
        let spec = serde_json::from_value(spec(&quiet)).unwrap();
        assert_eq!(warnings(&Definition::new(&spec, "j")), []);
    }
}

#[test]
fn the_shape_is_judged_with_field_and_remedy() {
    for (path, value, wanted) in [
        (
            "groups.0.cuont",
            json!(1),
            "spec.groups[0].cuont: is no known field; correct its name, or remove it (UnknownField)",
        ),
        (
            "groups.0.count",
            json!("3"),
            "spec.groups[0].count: is a text, but must be a whole number; correct it (FieldType)",
        ),
        (
            "groups.0.count",
            json!(1e30),
            "spec.groups[0].count: is a number, but must be a whole number; correct it (FieldType)",
        ),
        (
            "groups.0.count",
            json!(u64::MAX),
            "spec.groups[0].count: 18446744073709551615 is too large; lower it (FieldRange)",
        ),
        ("groups.0.tasks.0.name", json!(null), "spec.groups[0].tasks[0].name: is missing; add it (TaskNameMissing)"),
        (
            "groups.0.tasks.0.killTimeout",
            json!("5 d"),
            "spec.groups[0].tasks[0].killTimeout: `5 d` is not a duration; write a number and a unit, as in 500ms, 30s, 5m or 1h30m (FieldValue)",
        ),
        (
            "groups.0.disconnect.reconcile",
            json!("best"),
            "spec.groups[0].disconnect.reconcile: `best` is not allowed; take one of best_score, longest_running, keep_original, keep_replacement (DisconnectReconcile)",
        ),
    ] {
        let found = judge(&spec(&[(path, value)]));
        assert!(found.iter().any(|violation| violation.to_string() == wanted), "{wanted} is not among {found:?}");
    }
    assert_eq!(shape("Job", &json!({}))[0].to_string(), "spec: is missing; say what is wanted (FieldMissing)");
    assert_eq!(shape("Widget", &json!({})), []);
    let status = status_shape("Allocation", &json!({ "status": { "clientStatus": "dead" } }));
    assert_eq!(
        status[0].to_string(),
        "status.clientStatus: `dead` is not allowed; take one of pending, running, complete, failed, lost, unknown (FieldValue)"
    );
    assert_eq!(status_shape("Allocation", &json!({})), []);
}

/// What the API server refuses by CEL or by the schema is refused without it too, and what it accepts is accepted.
/// (Rules on changes are in `changes`, the one on the object's name is the CLI's. What merged blocks show the API
/// server cannot see.)
#[test]
fn the_api_servers_goldens_are_judged_alike() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/schema");
    let mut wrong = Vec::new();
    let mut judged = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let id = path.file_stem().unwrap().to_string_lossy().into_owned();
        let golden: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        if golden["refused"]["kind"] != "Job" || id == "job-name-length" {
            continue;
        }
        judged += 1;
        let before: Option<JobSpec> = serde_json::from_value(golden["before"]["spec"].clone()).ok();
        let all = |object: &Value| -> Vec<Violation> {
            let mut found = shape("Job", object);
            if let Ok(typed) = serde_json::from_value::<JobSpec>(object["spec"].clone()) {
                found.extend(violations(&Definition::new(&typed, "web")));
                found.extend(changes(before.as_ref(), &typed));
            }
            found
        };
        if all(&golden["refused"]).is_empty() {
            wrong.push(format!("{id}: the refused object has no violation"));
        }
        let mut found = all(&golden["accepted"]);
        let merged = ["KillTimeoutTooLong", "RestartImpossible", "RescheduleImpossible"];
        found.retain(|violation| !merged.contains(&violation.code));
        if !found.is_empty() {
            wrong.push(format!("{id}: the accepted object has {found:?}"));
        }
    }
    assert!(judged > 90 && wrong.is_empty(), "{judged} judged\n{}", wrong.join("\n"));
}

#[test]
fn hostile_specs_end_soon_in_named_violations() {
    let begun = Instant::now();
    let long = json!([{ "lTarget": "${meta.a}", "operand": "regexp", "rTarget": "(a*)*".repeat(1_000_000) }]);
    let found = codes(&[("constraints", long)]);
    assert!(found.contains(&"ConstraintRegexp") && found.contains(&"SpecTooLarge"), "{found:?}");

    let costly = vec![json!({ "lTarget": "a", "operand": "regexp", "rTarget": r"(\w{99}){99}" }); 64];
    assert!(codes(&[("constraints", json!(costly))]).contains(&"ConstraintRegexp"));

    let group = |n: usize| json!({ "name": format!("g{n}"), "tasks": [{ "name": "alloc", "driver": "" }] });
    let many: Vec<Value> = (0..10_000).map(group).collect();
    let found = judge(&spec(&[("groups", json!(many))]));
    assert!(found.iter().filter(|violation| violation.code == "GroupsTooMany").count() == 2, "{}", found[0]);
    assert!(found.len() < 2500, "{} violations", found.len());

    for huge in [i64::MAX, i64::MIN] {
        let all = codes(&[
            ("priority", json!(huge)),
            ("groups.0.count", json!(huge)),
            ("groups.0.ephemeralDisk.sizeMB", json!(huge)),
            ("groups.0.restart", json!({ "attempts": huge, "delay": "99999999999h", "interval": "99999999999h" })),
            ("groups.0.reschedule", json!({ "attempts": huge, "delay": "99999999999h", "interval": "1h" })),
            ("groups.0.tasks.0.logs", json!({ "maxFiles": huge, "maxFileSizeMB": huge })),
            (
                "groups.0.tasks.0.resources",
                json!({ "cpu": huge, "cores": huge, "memoryMB": huge, "memoryMaxMB": huge }),
            ),
            ("spreads", json!([{ "attribute": "a", "weight": huge, "targets": [{ "value": "x", "percent": huge }] }])),
            ("groups.0.networks", json!([{ "ports": [{ "label": "a", "static": huge, "to": huge }] }])),
        ]);
        assert!(all.contains(&"PriorityRange") && all.contains(&"PortRange"), "{all:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}
