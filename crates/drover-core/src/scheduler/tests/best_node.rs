//! Which node wins, beside an oracle that looks at every node with the formulas of `spec/scheduler.md` 4 and 5 and
//! keeps nothing from one placement to the next.

use fastrand::Rng;

use super::*;
use crate::settings::{Algorithm, Settings};

/// Clusters that are tried.
const CLUSTERS: u64 = 2_000;

/// A node, as far as the oracle looks at it.
#[derive(Clone, Debug)]
struct Machine {
    name: String,
    datacenter: &'static str,
    class: &'static str,
    rack: Option<&'static str>,
    generation: i64,
    total: (i64, i64),
    used: (i64, i64),
    is_eligible: bool,
    has_driver: bool,
    /// Allocations of the job.
    own: i64,
}

/// A rule on a node: what it says in a spec, and what it means.
#[derive(Clone, Copy, Debug)]
enum Rule {
    RackIs(&'static str),
    RackIsNot(&'static str),
    HasRack,
    GenerationAtLeast(i64),
    ClassMatches(&'static str),
}

impl Rule {
    fn random(rng: &mut Rng) -> Self {
        match rng.u8(..5) {
            0 => Self::RackIs(RACKS[rng.usize(..3)]),
            1 => Self::RackIsNot(RACKS[rng.usize(..3)]),
            2 => Self::HasRack,
            3 => Self::GenerationAtLeast(rng.i64(1..4)),
            _ => Self::ClassMatches(["b", "small|big", "^$"][rng.usize(..3)]),
        }
    }

    fn written(self) -> Value {
        let (left, operand, right) = match self {
            Self::RackIs(rack) => ("${meta.rack}", "=", rack.to_owned()),
            Self::RackIsNot(rack) => ("${meta.rack}", "!=", rack.to_owned()),
            Self::HasRack => ("${meta.rack}", "is_set", String::new()),
            Self::GenerationAtLeast(least) => ("${attr.generation}", ">=", least.to_string()),
            Self::ClassMatches(pattern) => ("${node.class}", "regexp", pattern.to_owned()),
        };
        json!({ "lTarget": left, "operand": operand, "rTarget": right })
    }

    fn key(self) -> String {
        let written = self.written();
        let parts = ["lTarget", "operand", "rTarget"].map(|part| written[part].as_str().unwrap().to_owned());
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    }

    fn holds(self, machine: &Machine) -> bool {
        match self {
            Self::RackIs(rack) => machine.rack == Some(rack),
            Self::RackIsNot(rack) => machine.rack != Some(rack),
            Self::HasRack => machine.rack.is_some(),
            Self::GenerationAtLeast(least) => machine.generation >= least,
            Self::ClassMatches("b") => machine.class.contains('b'),
            Self::ClassMatches("^$") => machine.class.is_empty(),
            Self::ClassMatches(_) => machine.class == "small" || machine.class == "big",
        }
    }
}

const RACKS: [&str; 3] = ["r1", "r2", "r3"];

/// A spread over racks or datacenters.
#[derive(Clone, Debug)]
struct Wanted {
    attribute: &'static str,
    weight: i64,
    targets: Vec<(&'static str, i64)>,
}

impl Wanted {
    fn value(&self, machine: &Machine) -> Option<&'static str> {
        if self.attribute == "${meta.rack}" { machine.rack } else { Some(machine.datacenter) }
    }
}

#[derive(Clone, Debug)]
struct Problem {
    machines: Vec<Machine>,
    count: i64,
    ask: (i64, i64),
    datacenters: &'static str,
    constraints: Vec<Rule>,
    affinities: Vec<(Rule, i64)>,
    spreads: Vec<Wanted>,
    distinct_hosts: bool,
    most_on_rack: Option<i64>,
    algorithm: Algorithm,
}

fn problem(seed: u64) -> Problem {
    let mut rng = Rng::with_seed(seed);
    let machines = (0..rng.usize(1..9)).map(|n| Machine {
        name: format!("m-{n}"),
        datacenter: ["dc1", "dc2"][rng.usize(..2)],
        class: ["", "small", "big"][rng.usize(..3)],
        rack: (rng.u8(..5) > 0).then(|| RACKS[rng.usize(..3)]),
        generation: rng.i64(1..4),
        total: (rng.i64(1_000..4_000), rng.i64(1_000..4_000)),
        used: if rng.bool() { (0, 0) } else { (rng.i64(0..900), rng.i64(0..900)) },
        is_eligible: rng.u8(..10) > 0,
        has_driver: rng.u8(..10) > 0,
        own: 0,
    });
    let machines = machines.collect();
    let rules = |rng: &mut Rng| -> Vec<Rule> {
        let n = if rng.bool() { 0 } else { rng.usize(1..3) };
        (0..n).map(|_| Rule::random(rng)).collect()
    };
    let constraints = rules(&mut rng);
    let affinities = rules(&mut rng);
    let weights = [-100, -40, 20, 50, 100];
    let affinities = affinities.into_iter().map(|rule| (rule, weights[rng.usize(..5)])).collect();
    let mut spreads = Vec::new();
    for (attribute, values) in [("${meta.rack}", RACKS), ("${node.datacenter}", ["dc1", "dc2", "dc3"])] {
        if rng.u8(..3) == 0 {
            let shares = [vec![], vec![60, 40], vec![70], vec![50, 25, 25]];
            let percents = shares[rng.usize(..4)].clone();
            let targets = values.into_iter().zip(percents).collect();
            spreads.push(Wanted { attribute, weight: rng.i64(1..100), targets });
        }
    }
    Problem {
        machines,
        count: rng.i64(1..8),
        ask: (rng.i64(100..1_200), rng.i64(100..1_200)),
        datacenters: ["*", "dc1", "dc*"][rng.usize(..3)],
        constraints,
        affinities,
        spreads,
        distinct_hosts: rng.u8(..6) == 0,
        most_on_rack: (rng.u8(..6) == 0).then(|| rng.i64(1..3)),
        algorithm: if rng.bool() { Algorithm::Binpack } else { Algorithm::Spread },
    }
}

fn planned(problem: &Problem) -> Plan {
    let mut constraints: Vec<Value> = problem.constraints.iter().map(|rule| rule.written()).collect();
    if problem.distinct_hosts {
        constraints.push(json!({ "operand": "distinct_hosts" }));
    }
    if let Some(most) = problem.most_on_rack {
        constraints
            .push(json!({ "lTarget": "${meta.rack}", "operand": "distinct_property", "rTarget": most.to_string() }));
    }
    let mut affinities = Vec::new();
    for (rule, weight) in &problem.affinities {
        let mut affinity = rule.written();
        affinity["weight"] = json!(weight);
        affinities.push(affinity);
    }
    let spreads: Vec<Value> = problem
        .spreads
        .iter()
        .map(|spread| {
            let targets = spread.targets.iter().map(|(value, percent)| json!({ "value": value, "percent": percent }));
            json!({ "attribute": spread.attribute, "weight": spread.weight, "targets": targets.collect::<Vec<_>>() })
        })
        .collect();
    let mut one = spec(problem.count);
    one["datacenters"] = json!([problem.datacenters]);
    one["constraints"] = json!(constraints);
    one["groups"][0]["affinities"] = json!(affinities);
    one["groups"][0]["spreads"] = json!(spreads);
    one["groups"][0]["tasks"][0]["resources"] = json!({ "cpu": problem.ask.0, "memoryMB": problem.ask.1 });
    let mut world = World::without_nodes(&one);
    for machine in &problem.machines {
        put(&mut world, machine);
    }
    world.view.set_settings(Settings { algorithm: problem.algorithm, ..Settings::default() });
    world.plan()
}

/// A machine, with what another job uses of it.
fn put(world: &mut World, machine: &Machine) {
    let mut made = node(&machine.name);
    (made.datacenter, made.class) = (machine.datacenter.into(), machine.class.into());
    made.allocatable = Amounts { cpu: machine.total.0, memory_mb: machine.total.1, disk_mb: 1_000_000 };
    made.attributes.insert("generation".into(), machine.generation.to_string());
    made.meta.extend(machine.rack.map(|rack| ("rack".to_owned(), rack.to_owned())));
    made.is_eligible = machine.is_eligible;
    if !machine.has_driver {
        made.drivers.insert("mock".into(), DriverState::Unhealthy);
    }
    world.view.put_node(made);
    let held: AllocatedResources =
        serde_json::from_value(json!({ "tasks": { "t": { "cpu": machine.used.0, "memoryMB": machine.used.1 } } }))
            .unwrap();
    world.allocs([0], |alloc| {
        alloc.key = JobKey::new("shop", format!("load-{}", machine.name));
        (alloc.job, alloc.node) = (JobKey::new("shop", "load"), machine.name.as_str().into());
        alloc.resources = Arc::new(held.clone());
    });
}

/// What a node is to a placement.
#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    NotLookedAt,
    Filtered(String),
    Exhausted(&'static str),
    Open(f64),
}

fn verdict(problem: &Problem, machines: &[Machine], at: usize) -> Verdict {
    let machine = &machines[at];
    if !machine.is_eligible || (problem.datacenters == "dc1" && machine.datacenter != "dc1") {
        return Verdict::NotLookedAt;
    }
    if let Some(broken) = problem.constraints.iter().find(|rule| !rule.holds(machine)) {
        return Verdict::Filtered(broken.key());
    }
    if !machine.has_driver {
        return Verdict::Filtered("missingDrivers:mock".into());
    }
    if problem.distinct_hosts && machine.own > 0 {
        return Verdict::Filtered("distinctHosts".into());
    }
    if let Some(most) = problem.most_on_rack {
        let Some(rack) = machine.rack else { return Verdict::Filtered("distinctProperty:${meta.rack}=".into()) };
        let there: i64 = machines.iter().filter(|other| other.rack == Some(rack)).map(|other| other.own).sum();
        if there >= most {
            return Verdict::Filtered(format!("distinctProperty:${{meta.rack}}={rack}"));
        }
    }
    if machine.used.0 + problem.ask.0 > machine.total.0 {
        return Verdict::Exhausted("cpu");
    }
    if machine.used.1 + problem.ask.1 > machine.total.1 {
        return Verdict::Exhausted("memory");
    }
    Verdict::Open(score(problem, machines, machine))
}

fn f(number: i64) -> f64 {
    f64::from(i32::try_from(number).unwrap())
}

/// 5.4: the mean of what contributes.
fn score(problem: &Problem, machines: &[Machine], machine: &Machine) -> f64 {
    let free_cpu = 1.0 - f(machine.used.0 + problem.ask.0) / f(machine.total.0);
    let free_memory = 1.0 - f(machine.used.1 + problem.ask.1) / f(machine.total.1);
    let powers = 10_f64.powf(free_cpu) + 10_f64.powf(free_memory);
    let raw = if problem.algorithm == Algorithm::Binpack { 20.0 - powers } else { powers - 2.0 };
    let mut parts = vec![raw.clamp(0.0, 18.0) / 18.0];
    if machine.own > 0 {
        parts.push(-f(machine.own + 1) / f(problem.count));
    }
    if !problem.affinities.is_empty() {
        let all: i64 = problem.affinities.iter().map(|(_, weight)| weight.abs()).sum();
        let matched = problem.affinities.iter().filter(|(rule, _)| rule.holds(machine));
        parts.push(f(matched.map(|(_, weight)| weight).sum()) / f(all));
    }
    let spread: f64 = problem.spreads.iter().map(|spread| spread_score(problem, spread, machines, machine)).sum();
    if spread != 0.0 {
        parts.push(spread);
    }
    parts.iter().sum::<f64>() / f(i64::try_from(parts.len()).unwrap())
}

/// 5.5, row by row.
fn spread_score(problem: &Problem, spread: &Wanted, machines: &[Machine], machine: &Machine) -> f64 {
    let Some(value) = spread.value(machine) else { return -1.0 };
    let mut used: BTreeMap<&str, i64> = BTreeMap::new();
    for other in machines.iter().filter(|other| other.own > 0) {
        if let Some(value) = spread.value(other) {
            *used.entry(value).or_default() += other.own;
        }
    }
    let on = |value: &str| used.get(value).copied().unwrap_or(0);
    if spread.targets.is_empty() {
        let (Some(min), Some(max)) = (used.values().min(), used.values().max()) else { return 0.0 };
        return match on(value) {
            current if current != *min => f(min - current) / f(*min),
            _ if min == max => -1.0,
            _ => f(max - min) / f(*min),
        };
    }
    let share = f(spread.weight) / f(problem.spreads.iter().map(|spread| spread.weight).sum());
    let desired = |percent: i64| f(percent) / 100.0 * f(problem.count);
    let is_target = |value: &str| spread.targets.iter().any(|(target, _)| *target == value);
    let rest = f(problem.count) - spread.targets.iter().map(|(_, percent)| desired(*percent)).sum::<f64>();
    let (wanted, there) = match spread.targets.iter().find(|(target, _)| *target == value) {
        Some((_, percent)) => (desired(*percent), on(value)),
        None if rest > 0.0 => (rest, used.iter().filter(|(value, _)| !is_target(value)).map(|(_, n)| n).sum()),
        None => return -1.0,
    };
    (wanted - f(there + 1)) / wanted * share
}

#[test]
fn each_placement_takes_a_node_than_which_no_other_scores_better() {
    let mut n_placed = 0;
    for seed in 0..CLUSTERS {
        let problem = problem(seed);
        let plan = planned(&problem);
        let mut machines = problem.machines.clone();
        for placement in &plan.placements {
            let at = machines.iter().position(|machine| machine.name == placement.node.as_str()).unwrap();
            let verdicts: Vec<Verdict> = (0..machines.len()).map(|at| verdict(&problem, &machines, at)).collect();
            let Verdict::Open(chosen) = verdicts[at] else {
                panic!("seed {seed}: {} is {:?}\n{problem:?}", placement.node, verdicts[at]);
            };
            let open = verdicts.iter().filter_map(|verdict| match verdict {
                Verdict::Open(score) => Some(*score),
                Verdict::NotLookedAt | Verdict::Filtered(_) | Verdict::Exhausted(_) => None,
            });
            let best = open.fold(f64::MIN, f64::max);
            assert!(chosen > best - 1e-9, "seed {seed}: {} scores {chosen} of {best}\n{problem:?}", placement.node);
            assert!((placement.score() - chosen).abs() < 1e-9, "seed {seed}: recorded as {}", placement.score());
            (machines[at].used.0, machines[at].used.1) =
                (machines[at].used.0 + problem.ask.0, machines[at].used.1 + problem.ask.1);
            machines[at].own += 1;
            n_placed += 1;
        }
        check_rest(seed, &problem, &machines, &plan);
    }
    assert!(n_placed > 4_000, "only {n_placed} placements were looked at");
}

/// What was not placed fits nowhere, and each node's reason is counted.
fn check_rest(seed: u64, problem: &Problem, machines: &[Machine], plan: &Plan) {
    let n_missing = problem.count - i64::try_from(plan.placements.len()).unwrap();
    assert_eq!(plan.queued["web"], n_missing, "seed {seed}");
    if n_missing == 0 {
        assert!(plan.failed.is_empty(), "seed {seed}");
        return;
    }
    let (mut filtered, mut exhausted) = (BTreeMap::new(), BTreeMap::new());
    for at in 0..machines.len() {
        match verdict(problem, machines, at) {
            Verdict::NotLookedAt => {}
            Verdict::Filtered(key) => *filtered.entry(key).or_insert(0) += 1,
            Verdict::Exhausted(dimension) => *exhausted.entry(dimension.to_owned()).or_insert(0) += 1,
            Verdict::Open(score) => panic!("seed {seed}: {} is open with {score}\n{problem:?}", machines[at].name),
        }
    }
    let failed = &plan.failed["web"];
    assert_eq!(failed.constraint_filtered, filtered, "seed {seed}");
    assert_eq!(failed.dimension_exhausted, exhausted, "seed {seed}");
    let sums = (filtered.values().sum::<i64>(), exhausted.values().sum::<i64>());
    assert_eq!((failed.nodes_filtered, failed.nodes_exhausted), sums, "seed {seed}");
    assert_eq!(failed.nodes_evaluated, sums.0 + sums.1, "seed {seed}");
    assert_eq!(failed.coalesced_failures, n_missing - 1, "seed {seed}");
}
