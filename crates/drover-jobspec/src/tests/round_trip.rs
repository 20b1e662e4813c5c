//! A job as Nomad's JSON and as HCL is the same job when it is read again, but for what the lists here name.

use drover_api::names::object_name;
use drover_api::{GoDuration, Job, JobSpec};
use drover_core::defaults;
use serde_json::{Value, json};

use super::specs;
use crate::{Inputs, hcl, manifests, wire_job, wire_manifest};

const SEEDS: u64 = if cfg!(debug_assertions) { 500 } else { 20_000 };

/// What stands for a missing field, by the fields on the way to it. None of it changes what a job does.
const USUAL: &[(&str, &[&str])] = &[
    ("region", &["\"\"", "\"global\""]),
    ("periodic.timeZone", &["\"UTC\""]),
    ("periodic.enabled", &["true"]),
    ("multiregion", &["{\"regions\":[]}"]),
    ("multiregion.strategy", &["{\"maxParallel\":0}"]),
    ("groups.preventRescheduleOnLost", &["false"]),
    ("groups.maxClientDisconnect", &["\"0s\""]),
    ("groups.stopAfterClientDisconnect", &["\"0s\""]),
    ("groups.shutdownDelay", &["\"0s\""]),
    ("groups.maxRunDuration", &["\"0s\""]),
    ("groups.update.stagger", &["\"30s\""]),
    ("groups.disconnect.stopOnClientAfter", &["\"0s\""]),
    ("groups.scaling.enabled", &["true"]),
    ("groups.networks.mbits", &["0"]),
    ("groups.networks.dns", &["{}"]),
    ("groups.networks.cni", &["{\"name\":\"\"}"]),
    ("groups.networks.ports.to", &["0"]),
    ("groups.networks.ports.hostNetwork", &["\"\"", "\"default\""]),
    ("groups.volumes.mountOptions", &["{}"]),
    ("groups.tasks.shutdownDelay", &["\"0s\""]),
    ("groups.tasks.resources.cores", &["0"]),
    ("groups.tasks.resources.memoryMaxMB", &["0"]),
    ("groups.tasks.resources.secretsMB", &["0"]),
    ("groups.tasks.resources.numa", &["{\"affinity\":\"none\"}"]),
    ("groups.tasks.volumeMounts.propagationMode", &["\"private\""]),
    ("groups.tasks.templates.changeMode", &["\"restart\""]),
    ("groups.tasks.templates.changeScript.timeout", &["\"5s\""]),
    ("groups.tasks.templates.splay", &["\"5s\""]),
    ("groups.tasks.templates.perms", &["\"0644\""]),
    ("groups.tasks.templates.leftDelimiter", &["\"{{\""]),
    ("groups.tasks.templates.rightDelimiter", &["\"}}\""]),
    ("groups.tasks.templates.wait", &["{}"]),
    ("groups.tasks.artifacts.getterMode", &["\"any\""]),
    ("groups.tasks.artifacts.relativeDest", &["\"local/\""]),
    ("groups.tasks.identities.changeMode", &["\"noop\""]),
    ("groups.tasks.identities.ttl", &["\"0s\""]),
    ("groups.tasks.csiPlugin.healthTimeout", &["\"30s\"", "\"0s\""]),
    ("groups.services.checks.checkRestart.grace", &["\"1s\""]),
    ("groups.services.provider", &["\"kubernetes\""]),
    ("groups.services.addressMode", &["\"auto\""]),
    ("groups.services.kubernetes", &["{}"]),
    ("groups.tasks.services.checks.checkRestart.grace", &["\"1s\""]),
    ("groups.tasks.services.provider", &["\"kubernetes\""]),
    ("groups.tasks.services.addressMode", &["\"auto\""]),
    ("groups.tasks.services.kubernetes", &["{}"]),
];

/// A spec as far as it matters, without what may be written in two ways.
fn normal(spec: &JobSpec, name: &str) -> Value {
    let mut spec = spec.clone();
    for reschedule in spec.groups.iter_mut().filter_map(|group| group.reschedule.as_mut()) {
        let given = |duration: Option<GoDuration>| duration.filter(|duration| *duration != GoDuration::ZERO);
        (reschedule.interval, reschedule.max_delay) = (given(reschedule.interval), given(reschedule.max_delay));
    }
    let mut spec = defaults::canonical(&spec, name);
    // Each group has it.
    spec.update = None;
    if let Some(periodic) = &mut spec.periodic
        && !periodic.cron.is_empty()
    {
        periodic.crons = vec![std::mem::take(&mut periodic.cron)];
    }
    for network in spec.groups.iter_mut().flat_map(|group| &mut group.networks) {
        network.ports.sort_by(|one, other| one.label.cmp(&other.label));
    }
    for task in spec.groups.iter_mut().flat_map(|group| &mut group.tasks) {
        task.identities.sort_by(|one, other| one.name.cmp(&other.name));
    }
    let mut value = serde_json::to_value(&spec).unwrap();
    strip(&mut value, "");
    value
}

fn strip(value: &mut Value, path: &str) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| strip(value, path)),
        Value::Object(fields) => {
            let is_free = path.ends_with(".config") || path.ends_with(".policy");
            if is_free {
                // A map there is a list of one in job files, as a block is.
                for map in fields.values_mut().filter(|value| value.is_object()) {
                    *map = Value::Array(vec![map.take()]);
                }
                return;
            }
            for (name, value) in fields.iter_mut() {
                strip(value, &if path.is_empty() { name.clone() } else { format!("{path}.{name}") });
            }
            fields.retain(|name, value| {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let usual = USUAL.iter().find(|(known, _)| *known == path).map_or(&[][..], |(_, usual)| usual);
                !usual.contains(&value.to_string().as_str())
            });
            if let Some(operand) = fields.get_mut("operand") {
                match operand.as_str() {
                    Some("==" | "is") => *operand = "=".into(),
                    Some("not") => *operand = "!=".into(),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

fn job(seed: u64) -> Job {
    let spec = specs::spec(seed);
    let id = if spec.id.is_empty() { "web" } else { &spec.id };
    Job::new(&object_name(id), spec)
}

pub(super) fn read(manifest: &Value, seed: u64) -> Job {
    serde_json::from_value(manifest.clone()).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{manifest:#}"))
}

/// Names what differs, which two whole specs do not show.
pub(super) fn check(before: &Job, after: &Job, seed: u64, text: &str) {
    let name = before.metadata.name.as_deref().unwrap();
    assert_eq!(after.metadata.name.as_deref(), Some(name), "seed {seed}");
    let (before, after) = (normal(&before.spec, name), normal(&after.spec, name));
    let mut differences = Vec::new();
    differ(&before, &after, "spec", &mut differences);
    assert!(differences.is_empty(), "seed {seed}: {differences:#?}\n{text}");
}

fn differ(before: &Value, after: &Value, path: &str, found: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(one), Value::Object(other)) => {
            for key in one.keys().chain(other.keys().filter(|key| !one.contains_key(*key))) {
                let (one, other) = (one.get(key).unwrap_or(&Value::Null), other.get(key).unwrap_or(&Value::Null));
                differ(one, other, &format!("{path}.{key}"), found);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (at, (one, other)) in one.iter().zip(other).enumerate() {
                differ(one, other, &format!("{path}[{at}]"), found);
            }
        }
        _ if before != after => found.push(format!("{path}: {before} became {after}")),
        _ => {}
    }
}

#[test]
fn a_job_as_nomads_json_is_the_same_job_when_it_is_read() {
    for seed in 0..SEEDS {
        let job = job(seed);
        let wire = wire_job(&job);
        let text = wire.to_string();
        let manifest = wire_manifest("job.json", &text).unwrap_or_else(|faults| panic!("seed {seed}: {faults:#?}"));
        let again = read(&manifest, seed);
        check(&job, &again, seed, "");
        // In a request it is the same.
        let request = json!({ "Job": wire, "EnforceIndex": true, "JobModifyIndex": 7 }).to_string();
        assert_eq!(read(&wire_manifest("job.json", &request).unwrap(), seed), again, "seed {seed}");
    }
}

#[test]
fn a_job_as_hcl_is_the_same_job_when_it_is_read() {
    for seed in 0..SEEDS {
        let mut job = job(seed);
        let text = hcl(&job);
        let found = manifests("job.hcl", &text, &Inputs::default());
        let mut found = found.unwrap_or_else(|faults| panic!("seed {seed}: {faults:#?}\n{text}"));
        job.spec.stop = false;
        check(&job, &read(&found.remove(0), seed), seed, &text);
    }
}

/// Registering what was read changes nothing, so that no allocation is replaced.
#[test]
fn a_job_that_was_read_once_does_not_change_any_more() {
    for seed in 0..SEEDS {
        let once = read(&wire_manifest("job.json", &wire_job(&job(seed)).to_string()).unwrap(), seed);
        let twice = read(&wire_manifest("job.json", &wire_job(&once).to_string()).unwrap(), seed);
        let mut differences = Vec::new();
        // Policies that were left out are complete from the second time on.
        let complete = |job: &Job| defaults::canonical(&job.spec, job.metadata.name.as_deref().unwrap());
        let values = [&once, &twice].map(|job| serde_json::to_value(complete(job)).unwrap());
        differ(&values[0], &values[1], "spec", &mut differences);
        assert!(differences.is_empty(), "seed {seed}: {differences:#?}");
    }
}

/// The generator reaches every field, so that the properties say something of each.
#[test]
fn every_field_is_met() {
    fn fields(value: &Value, path: &str, seen: &mut std::collections::BTreeSet<String>) {
        match value {
            Value::Array(values) => values.iter().for_each(|value| fields(value, path, seen)),
            Value::Object(values) if !path.ends_with(".config") && !path.ends_with(".policy") => {
                for (name, value) in values {
                    let path = format!("{path}.{name}");
                    fields(value, &path, seen);
                    seen.insert(path);
                }
            }
            _ => {}
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..SEEDS {
        fields(&serde_json::to_value(specs::spec(seed)).unwrap(), "spec", &mut seen);
    }
    for field in [
        "spec.groups.tasks.services.checks.checkRestart.ignoreWarnings",
        "spec.groups.tasks.templates.changeScript.runOnFirstRender",
        "spec.groups.tasks.identities.kubernetes.serviceAccount",
        "spec.groups.tasks.resources.devices.affinities.weight",
        "spec.groups.networks.ports.ignoreCollision",
        "spec.multiregion.regions.nodePool",
        "spec.periodic.cron",
    ] {
        assert!(seen.contains(field), "{field}");
    }
}
