//! What is advised for a job that found no place: which single change, and how many more find a node with it.

use serde_json::{Value, json};

use super::*;
use crate::model::{Amounts, Node};
use crate::scheduler::tests::{World, node, now, spec};

const SEED: u64 = 7;

/// The advice for a group of a job on these nodes alone, as `drover plan` tells it.
fn advice_for(group: &str, spec: &Value, nodes: impl IntoIterator<Item = Node>) -> Vec<(String, i64)> {
    let mut world = World::without_nodes(spec);
    for one in nodes {
        world.view.put_node(one);
    }
    let trigger = drover_api::job::EvalTrigger::JobRegister;
    let job = world.job.key.clone();
    let eval = Evaluation { id: "e".into(), job, trigger, priority: 50, now: now(), wait_until: None };
    let plan = scheduler::plan(&world.view, &eval, &mut fastrand::Rng::with_seed(SEED));
    let advice = advice(&world.view, &eval, SEED, &plan, group);
    advice.into_iter().map(|one| (one.change.to_string(), one.gain)).collect()
}

fn assert_advised(what: &str, spec: &Value, nodes: impl IntoIterator<Item = Node>, wanted: &[(&str, i64)]) {
    let wanted: Vec<(String, i64)> = wanted.iter().map(|(change, gain)| ((*change).to_owned(), *gain)).collect();
    assert_eq!(advice_for("web", spec, nodes), wanted, "{what}");
}

/// A node with these entries of `meta`.
fn marked(name: &str, marks: &[(&str, &str)]) -> Node {
    let meta = marks.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Node { meta, ..node(name) }
}

fn of_size(cpu: i64, memory_mb: i64, disk_mb: i64) -> Node {
    Node { allocatable: Amounts { cpu, memory_mb, disk_mb }, ..node("n-0") }
}

fn is(l_target: &str, r_target: &str) -> Value {
    json!({ "lTarget": l_target, "operand": "=", "rTarget": r_target })
}

/// A job with two groups, of which the second, `web`, has two tasks.
fn two_groups(count: i64) -> Value {
    let task = |name: &str| json!({ "name": name, "driver": "mock", "resources": { "cpu": 100, "memoryMB": 100 } });
    json!({ "groups": [
        { "name": "other", "count": 1, "tasks": [task("t")] },
        { "name": "web", "count": count, "tasks": [task("s"), task("t")] }] })
}

#[test]
fn a_constraint_in_the_way_is_named_where_it_stands() {
    for (at, field) in [
        ("", "spec.constraints[1]"),
        ("/groups/1", "spec.groups[1].constraints[1]"),
        ("/groups/1/tasks/1", "spec.groups[1].tasks[1].constraints[1]"),
    ] {
        let mut job = two_groups(3);
        let constraints = json!([is("${attr.kernel.name}", "linux"), is("${meta.rack}", "r1")]);
        job.pointer_mut(at).unwrap()["constraints"] = constraints;
        let wanted = format!("without {field} (${{meta.rack}} = r1)");
        assert_advised(field, &job, [node("n-0")], &[(&wanted, 3)]);
    }
}

#[test]
fn a_rule_is_told_without_the_sides_that_it_lacks() {
    let constrained = |count, rule: Value| {
        let mut job = spec(count);
        job["groups"][0]["constraints"] = json!([rule]);
        job
    };
    let hosts = constrained(5, json!({ "operand": "distinct_hosts" }));
    let wanted = [("without spec.groups[0].constraints[0] (distinct_hosts)", 3)];
    assert_advised("neither side", &hosts, [node("n-0"), node("n-1")], &wanted);
    let set = constrained(1, json!({ "lTarget": "${meta.rack}", "operand": "is_set" }));
    let wanted = [("without spec.groups[0].constraints[0] (${meta.rack} is_set)", 1)];
    assert_advised("no right side", &set, [node("n-0")], &wanted);
}

#[test]
fn a_change_that_helps_only_some_says_how_many() {
    let mut job = spec(3);
    job["constraints"] = json!([is("${meta.rack}", "r1")]);
    let for_two = Node { max_allocs: Some(2), ..node("n-0") };
    assert_advised("two fit", &job, [for_two], &[("without spec.constraints[0] (${meta.rack} = r1)", 2)]);
}

#[test]
fn a_change_that_helps_none_alone_is_not_advised() {
    let mut job = spec(2);
    job["constraints"] = json!([is("${meta.rack}", "r1"), is("${meta.row}", "2")]);
    assert_advised("each leaves the other", &job, [node("n-0")], &[]);
    job["constraints"] = json!([is("${meta.rack}", "r1")]);
    let full = Node { max_allocs: Some(0), ..node("n-0") };
    assert_advised("no room behind it", &job, [full], &[]);
}

#[test]
fn the_three_most_helpful_changes_are_told_and_the_best_is_first() {
    let mut job = spec(10);
    let rules = ["a", "b", "c", "d"].map(|key| is(&format!("${{meta.{key}}}"), "1"));
    let mut constraints = vec![json!({ "operand": "distinct_hosts" })];
    constraints.extend(rules);
    job["groups"][0]["constraints"] = json!(constraints);
    // One node lacks only `a`, two only `b`, three only `c` and four only `d`.
    let lacking = ["a", "b", "b", "c", "c", "c", "d", "d", "d", "d"];
    let nodes = lacking.iter().enumerate().map(|(n, lacks)| {
        let marks: Vec<(&str, &str)> =
            ["a", "b", "c", "d"].into_iter().filter(|key| key != lacks).map(|key| (key, "1")).collect();
        marked(&format!("n-{n}"), &marks)
    });
    let wanted = [
        ("without spec.groups[0].constraints[4] (${meta.d} = 1)", 4),
        ("without spec.groups[0].constraints[3] (${meta.c} = 1)", 3),
        ("without spec.groups[0].constraints[2] (${meta.b} = 1)", 2),
    ];
    assert_advised("four help", &job, nodes, &wanted);
}

#[test]
fn a_job_whose_datacenters_have_no_node_may_go_to_any() {
    let mut job = spec(3);
    job["datacenters"] = json!(["dc2"]);
    assert_advised("all nodes are in dc1", &job, [node("n-0")], &[("with spec.datacenters [\"*\"]", 3)]);
    job["datacenters"] = json!(["dc1"]);
    assert_advised("it fits", &job, [node("n-0")], &[]);
    job["datacenters"] = json!(["dc2", "dc1"]);
    job["constraints"] = json!([is("${meta.rack}", "r1")]);
    let wanted = [("without spec.constraints[0] (${meta.rack} = r1)", 3)];
    assert_advised("other datacenters have no other node", &job, [node("n-0")], &wanted);
}

#[test]
fn a_fixed_port_that_is_taken_may_be_any_free_one() {
    let mut job = spec(3);
    job["groups"][0]["networks"] = json!([{ "ports": [
        { "label": "admin" }, { "label": "db", "static": 5432 }, { "label": "http", "static": 8080 }] }]);
    let reserved = Node { reserved_ports: [8080].into(), ..node("n-0") };
    assert_advised("each alone leaves the other port taken", &job, [node("n-0")], &[]);
    job["groups"][0]["count"] = json!(1);
    assert_advised("one is reserved", &job, [reserved], &[("with a free port for http instead of 8080", 1)]);
    job["groups"][0]["count"] = json!(3);
    job["groups"][0]["networks"] = json!([{ "ports": [{ "label": "http", "static": 8080 }] }]);
    let wanted = [("with a free port for http instead of 8080", 2)];
    assert_advised("the first one takes it", &job, [node("n-0")], &wanted);
}

/// A job of one group whose tasks `s` and `t` ask for that.
fn asking(s: &Value, t: &Value, disk: i64) -> Value {
    json!({ "groups": [{ "name": "web", "count": 1, "ephemeralDisk": { "sizeMB": disk }, "tasks": [
        { "name": "s", "driver": "mock", "resources": s }, { "name": "t", "driver": "mock", "resources": t }] }] })
}

#[test]
fn the_most_that_fits_is_advised_for_the_task_that_asks_for_most() {
    let usual = || json!({ "cpu": 100, "memoryMB": 100 });
    let cpu = |n: i64| json!({ "cpu": n, "memoryMB": 100 });
    let memory = |n: i64| json!({ "cpu": 100, "memoryMB": n });
    let cores = |n: i64| json!({ "cores": n, "memoryMB": 100 });
    for (what, job, machine, wanted) in [
        (
            "cpu of the second task",
            asking(&cpu(300), &cpu(800), 300),
            of_size(1000, 1000, 1000),
            Some("with spec.groups[0].tasks[1].resources.cpu 700 instead of 800"),
        ),
        (
            "cpu of the first task, all but 1 MHz",
            asking(&cpu(800), &cpu(300), 300),
            of_size(301, 1000, 1000),
            Some("with spec.groups[0].tasks[0].resources.cpu 1 instead of 800"),
        ),
        ("no cpu is left for it", asking(&cpu(800), &cpu(300), 300), of_size(300, 1000, 1000), None),
        (
            "memory of the first task",
            asking(&memory(901), &memory(100), 300),
            of_size(1000, 1000, 1000),
            Some("with spec.groups[0].tasks[0].resources.memoryMB 900 instead of 901"),
        ),
        (
            "memory of the second task, as little as a task may have",
            asking(&memory(100), &memory(900), 300),
            of_size(1000, 110, 1000),
            Some("with spec.groups[0].tasks[1].resources.memoryMB 10 instead of 900"),
        ),
        ("less memory than a task may have", asking(&memory(100), &memory(900), 300), of_size(1000, 109, 1000), None),
        (
            "disk",
            asking(&usual(), &usual(), 600),
            of_size(1000, 1000, 450),
            Some("with spec.groups[0].ephemeralDisk.sizeMB 450 instead of 600"),
        ),
        (
            "disk, so that the logs of 100 MiB still fit",
            asking(&usual(), &usual(), 600),
            of_size(1000, 1000, 101),
            Some("with spec.groups[0].ephemeralDisk.sizeMB 101 instead of 600"),
        ),
        ("no disk for the logs", asking(&usual(), &usual(), 600), of_size(1000, 1000, 100), None),
        ("cores are no amount of MHz", asking(&usual(), &cores(9), 300), of_size(10_000, 1000, 1000), None),
    ] {
        let wanted: Vec<(&str, i64)> = wanted.into_iter().map(|change| (change, 1)).collect();
        assert_advised(what, &job, [machine], &wanted);
    }
}

#[test]
fn less_is_advised_so_that_the_missing_ones_fit_beside_those_that_are_placed() {
    let mut job = spec(2);
    job["groups"][0]["tasks"][0]["resources"]["memoryMB"] = json!(600);
    let wanted = [("with spec.groups[0].tasks[0].resources.memoryMB 500 instead of 600", 1)];
    assert_advised("two share 1000 MiB", &job, [of_size(1000, 1000, 1000)], &wanted);
}

#[test]
fn a_group_that_found_its_places_gets_no_advice() {
    let mut job = two_groups(1);
    job["groups"][1]["constraints"] = json!([is("${meta.rack}", "r1")]);
    for (group, n) in [("other", 0), ("web", 1), ("unknown", 0)] {
        assert_eq!(advice_for(group, &job, [node("n-0")]).len(), n, "{group}");
    }
}
