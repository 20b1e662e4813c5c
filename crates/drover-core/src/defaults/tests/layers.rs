//! Blocks of several levels, laid over each other as JSON.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::*;

/// Each field of a block, with two values that it may be given.
type BlockChoices = &'static [(&'static str, [&'static str; 2])];

/// Some of the fields, with one of their values each.
fn some(rng: &mut Rng, choices: BlockChoices) -> Map<String, Value> {
    let mut block = Map::new();
    for (name, values) in choices {
        if rng.bool() {
            let text = values[rng.usize(..2)];
            block.insert((*name).to_owned(), serde_json::from_str(text).expect("a value"));
        }
    }
    block
}

/// What later blocks say over what earlier ones say.
fn laid(blocks: &[&Map<String, Value>]) -> Value {
    let all = blocks.iter().flat_map(|block| block.iter());
    Value::Object(all.map(|(name, value)| (name.clone(), value.clone())).collect())
}

fn read<T: serde::de::DeserializeOwned>(block: &Map<String, Value>) -> T {
    serde_json::from_value(Value::Object(block.clone())).expect("a block")
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().expect("an object").clone()
}

/// Two blocks are compared as what they mean: `60s` is `1m`.
fn same<T: serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(found: &T, wanted: &Value) {
    let wanted: T = serde_json::from_value(wanted.clone()).expect("a block");
    assert_eq!(*found, wanted);
}

const UPDATE: BlockChoices = &[
    ("maxParallel", ["0", "7"]),
    ("canary", ["0", "2"]),
    ("minHealthyTime", ["\"0s\"", "\"1m\""]),
    ("healthyDeadline", ["\"2m\"", "\"1h\""]),
    ("progressDeadline", ["\"0s\"", "\"2h\""]),
    ("autoRevert", ["true", "false"]),
    ("autoPromote", ["true", "false"]),
    ("stagger", ["\"0s\"", "\"1m\""]),
    ("healthCheck", ["\"checks\"", "\"manual\""]),
];

#[test]
fn an_update_block_is_the_groups_over_the_jobs_over_the_specifications() {
    let mut rng = Rng::with_seed(12);
    let defaults = object(&json!({
        "maxParallel": 1, "canary": 0, "minHealthyTime": "10s", "healthyDeadline": "5m", "progressDeadline": "10m",
        "autoRevert": false, "autoPromote": false, "stagger": "30s", "healthCheck": "checks",
    }));
    for _ in 0..1000 {
        let (job, group) = (some(&mut rng, UPDATE), some(&mut rng, UPDATE));
        for kind in JobType::ALL {
            let found = update(*kind, Some(&read(&job)), Some(&read(&group))).expect("a block");
            same(&found, &laid(&[&defaults, &job, &group]));
        }
    }
}

const RESTART: BlockChoices = &[
    ("attempts", ["0", "9"]),
    ("interval", ["\"0s\"", "\"1h\""]),
    ("delay", ["\"0s\"", "\"1m\""]),
    ("mode", ["\"fail\"", "\"delay\""]),
    ("renderTemplates", ["true", "false"]),
];

#[test]
fn a_restart_block_is_the_tasks_over_the_groups_over_that_of_the_jobs_type() {
    let mut rng = Rng::with_seed(13);
    for (kind, attempts, interval) in [
        (JobType::Service, 2, "30m"),
        (JobType::System, 2, "30m"),
        (JobType::Batch, 3, "24h"),
        (JobType::Sysbatch, 3, "24h"),
    ] {
        let defaults = object(&json!({
            "attempts": attempts, "interval": interval, "delay": "15s", "mode": "fail", "renderTemplates": false,
        }));
        same(&restart(kind, None, None), &Value::Object(defaults.clone()));
        for _ in 0..300 {
            let (group, task) = (some(&mut rng, RESTART), some(&mut rng, RESTART));
            let found = restart(kind, Some(&read(&group)), Some(&read(&task)));
            same(&found, &laid(&[&defaults, &group, &task]));
        }
    }
}

const RESCHEDULE: BlockChoices = &[
    ("attempts", ["0", "4"]),
    ("interval", ["\"0s\"", "\"1h\""]),
    ("delay", ["\"5s\"", "\"1m\""]),
    ("delayFunction", ["\"constant\"", "\"fibonacci\""]),
    ("maxDelay", ["\"0s\"", "\"3h\""]),
    ("unlimited", ["true", "false"]),
];

#[test]
fn a_reschedule_block_is_the_groups_over_that_of_the_jobs_type() {
    let mut rng = Rng::with_seed(14);
    for _ in 0..1000 {
        let given = some(&mut rng, RESCHEDULE);
        let is_bounded = given.contains_key("attempts");
        let service = object(&json!({
            "attempts": 0, "interval": "0s", "delay": "30s", "delayFunction": "exponential", "maxDelay": "1h",
            "unlimited": !is_bounded,
        }));
        same(&reschedule(JobType::Service, Some(&read(&given))), &laid(&[&service, &given]));
        let is_unlimited = given.get("unlimited") == Some(&json!(true));
        let batch = object(&json!({
            "attempts": i32::from(!is_unlimited), "interval": "24h", "delay": "5s", "delayFunction": "constant",
            "maxDelay": "0s", "unlimited": false,
        }));
        same(&reschedule(JobType::Batch, Some(&read(&given))), &laid(&[&batch, &given]));
    }
}

#[test]
fn a_migrate_block_is_the_groups_over_the_specifications() {
    let mut rng = Rng::with_seed(15);
    let choices: BlockChoices = &[
        ("maxParallel", ["0", "3"]),
        ("healthCheck", ["\"checks\"", "\"task_states\""]),
        ("minHealthyTime", ["\"0s\"", "\"1m\""]),
        ("healthyDeadline", ["\"1m\"", "\"1h\""]),
    ];
    let defaults = object(&json!({
        "maxParallel": 1, "healthCheck": "checks", "minHealthyTime": "10s", "healthyDeadline": "5m",
    }));
    for _ in 0..300 {
        let given = some(&mut rng, choices);
        same(&migrate(Some(&read(&given))), &laid(&[&defaults, &given]));
    }
}

#[test]
fn a_batch_job_has_no_update_block_of_its_own_accord() {
    let (of_job, of_group) = (Update { canary: Some(3), ..Update::default() }, Update::default());
    for kind in JobType::ALL {
        let runs_on = matches!(kind, JobType::Service | JobType::System);
        let with = |job: Option<&Update>, group: Option<&Update>| {
            let mut spec = super::job(*kind);
            spec.update = job.cloned();
            spec.groups[0].update = group.cloned();
            canonical(&spec, "j").groups[0].update.as_ref().and_then(|update| update.canary)
        };
        assert_eq!(with(None, None), runs_on.then_some(0), "{kind}");
        assert_eq!(with(Some(&of_job), None), runs_on.then_some(3), "{kind}: the job's alone");
        assert_eq!(with(Some(&of_job), Some(&of_group)), Some(if runs_on { 3 } else { 0 }), "{kind}: both");
    }
}

#[test]
fn a_task_without_cores_asks_for_a_share_of_the_processor() {
    for (resources, cpu) in [
        (json!({}), Some(100)),
        (json!({ "cores": 0 }), Some(100)),
        (json!({ "cores": 2 }), None),
        (json!({ "cpu": 0 }), Some(0)),
        (json!({ "cpu": 7, "cores": 2 }), Some(7)),
    ] {
        let mut spec = super::job(JobType::Batch);
        let task = json!({ "name": "t", "driver": "mock", "resources": resources });
        spec.groups[0].tasks = vec![serde_json::from_value(task).expect("a task")];
        assert_eq!(canonical(&spec, "j").groups[0].tasks[0].resources.cpu, cpu, "{resources}");
    }
}

#[test]
fn a_job_is_named_after_its_id_and_that_after_its_object() {
    for (id, name, expected) in
        [("", "", ["o", "o"]), ("I", "", ["I", "I"]), ("", "N", ["o", "N"]), ("I", "N", ["I", "N"])]
    {
        let spec = JobSpec { id: id.to_owned(), name: name.to_owned(), ..JobSpec::default() };
        let full = canonical(&spec, "o");
        assert_eq!([full.id.as_str(), full.name.as_str()], expected, "{id:?} {name:?}");
    }
}

#[test]
fn a_disconnect_block_is_completed_and_no_other_made() {
    let with = |disconnect: &Value| {
        let mut spec = super::job(JobType::Service);
        spec.groups[0].disconnect = serde_json::from_value(disconnect.clone()).expect("a block");
        canonical(&spec, "j").groups[0].disconnect.clone()
    };
    assert_eq!(with(&json!(null)), None);
    let whole = json!({ "lostAfter": "0s", "replace": true, "reconcile": "best_score" });
    same(&with(&json!({})).expect("a block"), &whole);
    let own = json!({ "lostAfter": "6h", "replace": false, "reconcile": "longest_running", "stopOnClientAfter": "1m" });
    same(&with(&own).expect("a block"), &own);
}
