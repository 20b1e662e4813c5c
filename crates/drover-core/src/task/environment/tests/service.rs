//! What the fields of a service may refer to.

use serde_json::json;

use super::*;

fn scene() -> (Allocation, JobSpec, Group) {
    let mut allocation = Allocation::new("web-api-3-1f", drover_api::AllocationSpec::default());
    allocation.metadata.uid = Some("12345678-1234".into());
    allocation.spec.job_name = "web".into();
    allocation.spec.group = "api".into();
    allocation.spec.index = 3;
    allocation.spec.resources.ports =
        vec![AllocatedPort { label: "http".into(), value: 80, to: 8080, host_ip: "10.0.0.1".into() }];
    let meta = |whose: &str| BTreeMap::from([("who".to_owned(), whose.to_owned()), (whose.to_owned(), "1".to_owned())]);
    let job = JobSpec { meta: meta("job"), ..JobSpec::default() };
    let tasks = vec![task(&json!({ "meta": meta("task"), "env": { "OWN": "1" } }))];
    (allocation, job, Group { name: "api".into(), meta: meta("group"), tasks, ..Group::default() })
}

fn words(task: Option<&Task>) -> Vec<String> {
    let (allocation, job, group) = scene();
    let words = service_words(&allocation, &job, &group, task).expect("words");
    words.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

#[test]
fn a_groups_service_knows_its_allocation_ports_and_meta_and_no_task() {
    let expected = [
        "NOMAD_ADDR_http=10.0.0.1:80",
        "NOMAD_ALLOC_ID=12345678-1234",
        "NOMAD_ALLOC_INDEX=3",
        "NOMAD_ALLOC_NAME=web.api[3]",
        "NOMAD_ALLOC_PORT_http=8080",
        "NOMAD_GROUP_NAME=api",
        "NOMAD_HOST_ADDR_http=10.0.0.1:80",
        "NOMAD_HOST_IP_http=10.0.0.1",
        "NOMAD_HOST_PORT_http=80",
        "NOMAD_IP_http=10.0.0.1",
        "NOMAD_JOB_ID=web",
        "NOMAD_JOB_NAME=web",
        "NOMAD_META_GROUP=1",
        "NOMAD_META_JOB=1",
        "NOMAD_META_WHO=group",
        "NOMAD_META_group=1",
        "NOMAD_META_job=1",
        "NOMAD_META_who=group",
        "NOMAD_NAMESPACE=default",
        "NOMAD_PORT_http=8080",
        "NOMAD_REGION=global",
        "NOMAD_SHORT_ALLOC_ID=12345678",
    ];
    assert_eq!(words(None), expected);
}

#[test]
fn a_tasks_service_knows_its_task_too_and_not_its_environment() {
    let own = task(&json!({ "meta": { "who": "task", "task": "1" }, "env": { "OWN": "1" } }));
    let (of_task, of_group) = (words(Some(&own)), words(None));
    let more: Vec<&String> = of_task.iter().filter(|word| !of_group.contains(word)).collect();
    let expected = [
        "NOMAD_META_TASK=1",
        "NOMAD_META_WHO=task",
        "NOMAD_META_task=1",
        "NOMAD_META_who=task",
        "NOMAD_TASK_NAME=server",
    ];
    assert_eq!(more, expected);
    assert_eq!(of_task.len(), of_group.len() + 3);
}

#[test]
fn what_the_controller_does_not_know_of_a_node_stays_as_it_is_written() {
    let (allocation, mut job, group) = scene();
    for (key, value) in [("a", "${attr.cpu}"), ("b", "${meta.rack}"), ("c", "${NOMAD_DC}"), ("d", "${NOMAD_PORT_http}")]
    {
        job.meta.insert(key.to_owned(), value.to_owned());
    }
    let words = service_words(&allocation, &job, &group, None).expect("words");
    let found = ["a", "b", "c", "d"].map(|key| words[&format!("NOMAD_META_{key}")].as_str());
    assert_eq!(found, ["${attr.cpu}", "${meta.rack}", "${NOMAD_DC}", "8080"]);
}

#[test]
fn a_group_without_tasks_has_no_words_and_one_over_the_bounds_names_the_field() {
    let (allocation, mut job, mut group) = scene();
    job.meta.insert("long".to_owned(), "x".repeat(MAX_VALUE_BYTES + 1));
    let error = service_words(&allocation, &job, &group, None);
    assert_eq!(error, Err(ExpansionError::TooLong("meta.long".to_owned())));
    group.tasks.clear();
    assert_eq!(service_words(&allocation, &job, &group, None), Ok(BTreeMap::new()));
}
