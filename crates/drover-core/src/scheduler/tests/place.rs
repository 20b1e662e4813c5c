//! Cases of `spec/scheduler.md` 3.13 and 5: where allocations go, what is recorded when they go nowhere, and how nodes
//! score.

use drover_api::metric::{AllocMetric, Nearest, ResourcesExhausted};

use super::*;
use crate::scheduler::place::fullness;
use crate::scheduler::plan::Scores;
use crate::settings::{Algorithm, Settings};

/// A world with only these nodes.
fn only(spec: &Value, nodes: impl IntoIterator<Item = Node>) -> World {
    let mut world = World::without_nodes(spec);
    for node in nodes {
        world.view.put_node(node);
    }
    world
}

fn rack(name: &str, rack: &str) -> Node {
    Node { meta: BTreeMap::from([("rack".into(), rack.into())]), ..node(name) }
}

fn nodes_of(plan: &Plan) -> Vec<&str> {
    plan.placements.iter().map(|placement| placement.node.as_str()).collect()
}

#[test]
fn s_091_without_nodes_all_is_blocked() {
    let plan = only(&spec(10), []).plan();
    assert!(plan.is_empty());
    let failed = &plan.failed["web"];
    assert_eq!((failed.coalesced_failures, failed.nodes_in_pool), (9, 0));
    assert_eq!(plan.queued["web"], 10);
}

#[test]
fn s_092_what_fits_is_placed_and_the_rest_queued() {
    let small = Node { allocatable: Amounts { cpu: 150, memory_mb: 150, disk_mb: 1000 }, ..node("n-0") };
    let plan = only(&spec(3), [small]).plan();
    assert_eq!((plan.placements.len(), plan.queued["web"]), (1, 2));
    let failed = &plan.failed["web"];
    assert_eq!((failed.coalesced_failures, failed.dimension_exhausted["cpu"]), (1, 1));
    assert_eq!(failed.resources_exhausted["t"].cpu, 200, "two allocations asked in vain");
}

#[test]
fn nodes_that_are_not_taken_are_counted_by_cause_datacenter_and_class() {
    let tasks = json!([{ "name": "t", "driver": "mock", "resources": { "cpu": 500, "memoryMB": 400 } }]);
    let spec = with(with(spec(1), "tasks", tasks), "ephemeralDisk", json!({ "sizeMB": 300 }));
    let spec = with(spec, "constraints", json!([{ "lTarget": "${meta.rack}", "operand": "!=", "rTarget": "r9" }]));
    let of = |name: &str, class: &str, (cpu, memory_mb, disk_mb): (i64, i64, i64)| Node {
        class: class.into(),
        allocatable: Amounts { cpu, memory_mb, disk_mb },
        ..node(name)
    };
    let away = |name: &str, phase| Node { phase, ..node(name) };
    let world = only(
        &spec,
        [
            of("lacks-memory", "small", (1000, 300, 1000)),
            of("lacks-disk", "small", (1000, 1000, 150)),
            Node { datacenter: "dc2".into(), ..of("lacks-two", "", (450, 396, 1000)) },
            Node { class: "old".into(), ..rack("is-excluded", "r9") },
            away("down-1", NodePhase::Down),
            away("down-2", NodePhase::Down),
            away("comes", NodePhase::Initializing),
            away("is-silent", NodePhase::Disconnected),
            Node { is_draining: true, is_eligible: false, ..node("drains") },
            Node { is_eligible: false, ..node("is-closed") },
            Node { pool: "other".into(), ..away("of-others", NodePhase::Down) },
        ],
    );
    let mut failed = world.plan().failed.remove("web").expect("no place");
    let rules = std::mem::take(&mut failed.constraint_filtered);
    assert_eq!(rules.into_values().collect::<Vec<_>>(), [1]);
    let wanted = AllocMetric {
        nodes_evaluated: 4,
        nodes_in_pool: 4,
        nodes_filtered: 1,
        nodes_exhausted: 3,
        node_pool: "default".to_owned(),
        nodes_available: counts(&[("dc1", 3), ("dc2", 1)]),
        nodes_unavailable: counts(&[
            ("down", 2),
            ("initializing", 1),
            ("disconnected", 1),
            ("draining", 1),
            ("ineligible", 1),
        ]),
        class_filtered: counts(&[("old", 1)]),
        dimension_exhausted: counts(&[("cpu", 1), ("memory", 1), ("disk", 1)]),
        class_exhausted: counts(&[("small", 2)]),
        resources_exhausted: [("t".to_owned(), ResourcesExhausted { cpu: 500, memory_mb: 400 })].into(),
        // A tenth of the cpu and a hundredth of the memory that are asked for.
        nearest: Some(Nearest { node: "lacks-two".to_owned(), cpu: 50, memory_mb: 4, disk_mb: 0 }),
        ..AllocMetric::default()
    };
    assert_eq!(failed, wanted);
}

#[test]
fn s_093_one_group_does_not_hold_the_other_back() {
    let mut two = spec(2);
    let mut other = two["groups"][0].clone();
    (other["name"], other["count"]) = (json!("b"), json!(4));
    other["constraints"] = json!([{ "lTarget": "${node.class}", "operand": "=", "rTarget": "big" }]);
    two["groups"].as_array_mut().unwrap().push(other);
    let plan = World::new(&two).plan();
    assert_eq!(plan.placements.iter().filter(|one| &*one.group == "web").count(), 2);
    assert_eq!(plan.failed.keys().collect::<Vec<_>>(), ["b"]);
    assert_eq!(plan.failed["b"].coalesced_failures, 3);
}

#[test]
fn s_098_distinct_hosts_takes_each_node_once() {
    let mut distinct = spec(11);
    distinct["constraints"] = json!([{ "operand": "distinct_hosts" }]);
    let plan = World::new(&distinct).plan();
    let mut nodes = nodes_of(&plan);
    nodes.sort_unstable();
    nodes.dedup();
    assert_eq!((nodes.len(), plan.placements.len()), (10, 10));
    assert_eq!(plan.failed["web"].constraint_filtered["distinctHosts"], 10);
}

#[test]
fn s_099_distinct_property_limits_each_value() {
    let mut distinct = spec(8);
    distinct["constraints"] = json!([{ "lTarget": "${meta.rack}", "operand": "distinct_property", "rTarget": "2" }]);
    let nodes = [rack("a", "r1"), rack("b", "r1"), rack("c", "r2"), rack("d", "r2"), node("without")];
    let plan = only(&distinct, nodes).plan();
    let on = |names: [&str; 2]| nodes_of(&plan).iter().filter(|node| names.contains(node)).count();
    assert_eq!((plan.placements.len(), on(["a", "b"]), on(["c", "d"])), (4, 2, 2));
    let filtered = &plan.failed["web"].constraint_filtered;
    assert_eq!(filtered["distinctProperty:${meta.rack}=r1"], 2);
    assert_eq!(filtered["distinctProperty:${meta.rack}="], 1);
}

#[test]
fn s_100_the_node_on_which_it_failed_is_the_last_choice() {
    let policy = json!({ "delay": "5s", "delayFunction": "constant", "unlimited": true });
    for failed_on in ["n-1", "n-2"] {
        let mut world = only(&with(spec(1), "reschedule", policy.clone()), [node("n-1"), node("n-2")]);
        world.allocs(0..1, |alloc| {
            alloc.node = failed_on.into();
            alloc.client = ClientStatus::Failed;
            alloc.last_event_at = now() - SignedDuration::from_secs(60);
        });
        let plan = check(&world, &[0], &[0], &[]);
        assert_ne!(nodes_of(&plan), [failed_on]);
        assert_eq!(plan.placements[0].tracker.as_ref().unwrap().events[0].prev_node_name, failed_on);
    }
}

#[test]
fn s_101_a_sticky_disk_stays_on_its_node() {
    let sticky = with(spec(1), "ephemeralDisk", json!({ "sizeMB": 300, "sticky": true }));
    for at in 0..10 {
        let mut world = World::new(&sticky);
        world.old(&before_a_destructive_change(sticky.clone()));
        let name = format!("n-{at}");
        world.allocs(0..1, |alloc| (alloc.job_version, alloc.node) = (0, name.as_str().into()));
        assert_eq!(nodes_of(&check(&world, &[], &[], &[0])), [name.as_str()]);
    }
}

#[test]
fn s_102_a_full_node_is_used_again_by_its_own_update() {
    let rolling = with(spec(1), "update", json!({ "maxParallel": 1 }));
    let full = Node { allocatable: Amounts { cpu: 100, memory_mb: 100, disk_mb: 300 }, ..node("n-0") };
    let mut world = only(&rolling, [full]);
    world.old(&before_a_destructive_change(rolling));
    let held: AllocatedResources =
        serde_json::from_value(json!({ "tasks": { "t": { "cpu": 100, "memoryMB": 100 } }, "diskMB": 300 })).unwrap();
    world.allocs(0..1, |alloc| (alloc.job_version, alloc.resources) = (0, Arc::new(held.clone())));
    assert_eq!(nodes_of(&check(&world, &[], &[], &[0])), ["n-0"]);
    // With nobody to give way the same ask finds no room, and what runs goes on.
    world.view.put_node(Node { allocatable: Amounts { cpu: 99, memory_mb: 100, disk_mb: 300 }, ..node("n-0") });
    let plan = check(&world, &[], &[], &[]);
    assert_eq!(plan.failed["web"].dimension_exhausted["cpu"], 1);
}

fn close(got: f64, wanted: f64) {
    assert!((got - wanted).abs() < 0.0005, "{got} is not {wanted}");
}

#[test]
fn s_119_binpack_prefers_full_nodes_and_spread_empty_ones() {
    let total = Amounts { cpu: 2048, memory_mb: 4096, disk_mb: 0 };
    let share = |part: i64| Amounts { cpu: 1024 * part, memory_mb: 2048 * part, disk_mb: 0 };
    for (used, binpack, spread) in [(0, 0.0, 18.0), (1, 13.675, 4.325), (2, 18.0, 0.0)] {
        close(18.0 * fullness(Algorithm::Binpack, total, share(used)), binpack);
        close(18.0 * fullness(Algorithm::Spread, total, share(used)), spread);
    }
}

/// The scores of the chosen node.
fn scores(plan: &Plan) -> Scores {
    plan.placements[0].metrics.best[0].1
}

#[test]
fn s_120_an_ask_counts_as_used() {
    let mut asking = spec(1);
    asking["groups"][0]["tasks"][0]["resources"] = json!({ "cpu": 500, "memoryMB": 256 });
    let empty = Node { allocatable: Amounts { cpu: 4000, memory_mb: 8192, disk_mb: 10_000 }, ..node("n-0") };
    close(scores(&only(&asking, [empty]).plan()).binpack, 0.1775);
}

#[test]
fn s_121_others_of_the_group_count_against_a_node() {
    let policy = json!({ "delay": "5s", "delayFunction": "constant", "unlimited": true });
    let mut world = only(&with(spec(4), "reschedule", policy), [node("n-0")]);
    world.allocs(0..2, |alloc| alloc.node = "n-0".into());
    world.allocs(2..3, |alloc| alloc.node = "gone".into());
    world.view.put_node(Node { is_eligible: false, ..node("gone") });
    let ordinary = scores(&world.plan());
    assert_eq!(ordinary.anti_affinity, Some(-0.75));
    world.allocs(3..4, |alloc| {
        alloc.node = "n-0".into();
        alloc.client = ClientStatus::Failed;
        alloc.last_event_at = now() - SignedDuration::from_secs(60);
    });
    let penalised = scores(&world.plan());
    assert_eq!((penalised.anti_affinity, penalised.penalty), (Some(-0.75), Some(-1.0)));
    let without_binpack = f64::midpoint(penalised.anti_affinity.unwrap(), penalised.penalty.unwrap());
    close(without_binpack, -0.875);
    close(penalised.normalised(), (penalised.binpack - 1.75) / 3.0);
}

#[test]
fn s_122_affinities_add_up_by_their_weight() {
    let mut wanting = spec(1);
    wanting["affinities"] = json!([
        { "lTarget": "${node.datacenter}", "operand": "=", "rTarget": "dc1", "weight": 100 },
        { "lTarget": "${node.datacenter}", "operand": "=", "rTarget": "dc2", "weight": -100 },
        { "lTarget": "${attr.kernel.version}", "operand": "version", "rTarget": "> 4.0", "weight": 50 },
        { "lTarget": "${node.class}", "operand": "is", "rTarget": "large", "weight": 50 },
    ]);
    let with_kernel = |mut node: Node| {
        node.attributes.insert("kernel.version".into(), "4.9".into());
        node
    };
    let dc2 = || Node { datacenter: "dc2".into(), ..node("n-0") };
    let none = || Node { datacenter: "dc3".into(), ..node("n-0") };
    for (one, wanted) in [
        (with_kernel(node("n-0")), 0.5),
        (dc2(), -1.0 / 3.0),
        (Node { class: "large".into(), ..dc2() }, -1.0 / 6.0),
        (node("n-0"), 1.0 / 3.0),
        (none(), 0.0),
    ] {
        let scores = scores(&only(&wanting, [one]).plan());
        close(scores.affinity.expect("it contributes even where nothing matches"), wanted);
        assert_eq!(scores.sum().1, 2);
    }
}

/// S-127 and S-128: exact scoring looks at every node, with a spread and without.
#[test]
fn s_127_s_128_every_node_is_scored() {
    for (n, batch) in [(1, false), (5, false), (10, false), (100, false), (1024, false), (10, true)] {
        let mut one = spec(1);
        if batch {
            one["type"] = json!("batch");
            one["groups"][0].as_object_mut().unwrap().remove("update");
        }
        one["spreads"] = json!([{ "attribute": "${meta.rack}" }]);
        let plan = only(&one, (0..n).map(|at| node(&format!("m-{at:04}")))).plan();
        assert_eq!(plan.placements[0].metrics.counts.nodes_evaluated, n);
    }
    let plan = only(&spec(1), (0..20).map(|at| node(&format!("m-{at:04}")))).plan();
    assert_eq!(plan.placements[0].metrics.counts.nodes_evaluated, 20);
}

/// Nodes whose affinity scores are these, of which the best must win although another one is bad.
fn best_of(weights: &[i64]) -> String {
    let mut wanting = spec(1);
    wanting["affinities"] = weights
        .iter()
        .map(|weight| json!({ "lTarget": "${meta.rack}", "operand": "=", "rTarget": format!("w{weight}"), "weight": weight }))
        .collect();
    let nodes = weights.iter().map(|weight| rack(&format!("w{weight}"), &format!("w{weight}")));
    nodes_of(&only(&wanting, nodes).plan())[0].to_owned()
}

/// S-129 and S-130.
#[test]
fn s_129_s_130_the_exact_best_wins() {
    assert_eq!(best_of(&[-1, 2, 3]), "w3");
    assert_eq!(best_of(&[-1, 5]), "w5");
    assert_eq!(best_of(&[-1]), "w-1", "a bad node is better than none");
}

fn port_spec(count: i64, port: &Value) -> Value {
    with(spec(count), "networks", json!([{ "ports": [port] }]))
}

#[test]
fn s_131_dynamic_ports_come_from_the_nodes_range() {
    let narrow = Node { dynamic_ports: (20_000, 20_001), reserved_ports: [20_000].into(), ..node("n-0") };
    let plan = only(&port_spec(2, &json!({ "label": "http" })), [narrow]).plan();
    assert_eq!(plan.placements[0].resources.ports[0].value, 20_001);
    assert_eq!(plan.placements.len(), 1);
    let exhausted: Vec<&String> = plan.failed["web"].dimension_exhausted.keys().collect();
    assert!(exhausted[0].starts_with("network"), "{exhausted:?}");
}

#[test]
fn s_132_a_static_port_is_exclusive_unless_collisions_are_ignored() {
    let place = |port: Value| only(&port_spec(2, &port), [node("n-0")]).plan();
    let plan = place(json!({ "label": "http", "static": 80 }));
    assert_eq!(plan.placements.len(), 1);
    assert_eq!(plan.failed["web"].dimension_exhausted["network: reserved port collision http=80"], 1);
    assert_eq!(place(json!({ "label": "http", "static": 80, "ignoreCollision": true })).placements.len(), 2);
}

#[test]
fn cores_belong_to_one_task_alone() {
    let mut wanting = spec(3);
    wanting["groups"][0]["tasks"][0]["resources"] = json!({ "cores": 3, "memoryMB": 100 });
    let plan = only(&wanting, [node("n-0")]).plan();
    let given: Vec<&[i64]> = plan.placements.iter().map(|one| one.resources.tasks["t"].cores.as_slice()).collect();
    assert_eq!(given, [&[0, 1, 2][..], &[3, 4, 5]]);
    assert_eq!(plan.placements[0].resources.tasks["t"].cpu, 3000);
    assert_eq!(plan.failed["web"].dimension_exhausted["cores"], 1);
}

#[test]
fn the_spread_algorithm_prefers_empty_nodes() {
    for (algorithm, wanted) in [(Algorithm::Binpack, "n-full"), (Algorithm::Spread, "n-empty")] {
        let mut world = only(&spec(1), [node("n-empty"), node("n-full")]);
        let held: AllocatedResources =
            serde_json::from_value(json!({ "tasks": { "t": { "cpu": 50_000, "memoryMB": 50_000 } } })).unwrap();
        world.allocs(0..1, |alloc| {
            alloc.job = JobKey::new("shop", "other");
            alloc.node = "n-full".into();
            alloc.resources = Arc::new(held.clone());
        });
        world.view.set_settings(Settings { algorithm, ..Settings::default() });
        assert_eq!(nodes_of(&world.plan()), [wanted]);
    }
}

#[test]
fn spreads_level_values_out() {
    let mut even = spec(6);
    even["spreads"] = json!([{ "attribute": "${meta.rack}", "weight": 50 }]);
    let nodes = [rack("a", "r1"), rack("b", "r1"), rack("c", "r2"), rack("d", "r3")];
    let plan = only(&even, nodes).plan();
    let on = |rack: &[&str]| nodes_of(&plan).iter().filter(|node| rack.contains(node)).count();
    assert_eq!((on(&["a", "b"]), on(&["c"]), on(&["d"])), (2, 2, 2));
}

#[test]
fn memory_counts_with_secrets_and_its_maximum_only_where_allowed() {
    let mut wanting = spec(1);
    wanting["groups"][0]["tasks"][0]["resources"] =
        json!({ "cpu": 100, "memoryMB": 100, "secretsMB": 7, "memoryMaxMB": 400 });
    let mut world = only(&wanting, [node("n-0")]);
    let held = |world: &World| world.plan().placements[0].resources.tasks["t"].clone();
    assert_eq!((held(&world).memory_mb, held(&world).memory_max_mb), (107, 0));
    world.view.set_settings(Settings { memory_oversubscription: true, ..Settings::default() });
    assert_eq!(held(&world).memory_max_mb, 400);
}

#[test]
fn the_best_nodes_are_recorded_with_their_scores() {
    let plan = World::new(&spec(1)).plan();
    let recorded = plan.placements[0].metrics.to_api();
    assert_eq!(recorded.score_meta_data.len(), 5);
    assert_eq!(recorded.score_meta_data[0].node, plan.placements[0].node.as_str());
    assert!(recorded.score_meta_data.windows(2).all(|pair| pair[0].norm_score >= pair[1].norm_score));
    let names: Vec<&String> = recorded.score_meta_data[0].scores.keys().collect();
    assert_eq!(names, ["binpack", "job-anti-affinity", "node-affinity", "node-reschedule-penalty"]);
    assert_eq!((recorded.nodes_evaluated, recorded.nodes_available["dc1"]), (10, 10));
}
