//! How good exact placements are beside sampled ones: the same clusters and jobs are filled by the scheduler and by a
//! reference that looks at log2 of the nodes for each placement (at up to 100 with a spread), as Nomad describes its
//! own (5.6).

use fastrand::Rng;

use super::*;
use crate::arithmetic::ratio;
use crate::scheduler::place::fullness;
use crate::settings::Algorithm;

/// Clusters that are tried.
const CLUSTERS: u64 = 1_000;

fn size(n: usize) -> i64 {
    i64::try_from(n).unwrap()
}

struct Machine {
    name: String,
    rack: String,
    total: Amounts,
    used: Amounts,
    /// How many of the job are on it.
    n: i64,
}

struct Problem {
    machines: Vec<Machine>,
    ask: Amounts,
    count: i64,
    has_spread: bool,
}

fn problem(seed: u64) -> Problem {
    let mut rng = Rng::with_seed(seed);
    let (n_nodes, n_racks) = (rng.usize(20..200), rng.usize(2..8));
    let machines = (0..n_nodes).map(|n| {
        let total = Amounts { cpu: rng.i64(2_000..8_000), memory_mb: rng.i64(2_000..8_000), disk_mb: 100_000 };
        let load = if rng.bool() { 0 } else { rng.i64(5..70) };
        let used = Amounts { cpu: total.cpu * load / 100, memory_mb: total.memory_mb * load / 100, disk_mb: 0 };
        Machine { name: format!("m-{n:02}"), rack: format!("r{}", rng.usize(..n_racks)), total, used, n: 0 }
    });
    let machines = machines.collect();
    let ask = Amounts { cpu: rng.i64(200..1_500), memory_mb: rng.i64(200..1_500), disk_mb: 0 };
    Problem { machines, ask, count: rng.i64(3..40), has_spread: rng.bool() }
}

/// Nodes that anything runs on, and how far the racks' numbers are from even; with how many were placed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Quality {
    placed: i64,
    nodes_used: i64,
    spread_error: i64,
}

fn quality(machines: &[Machine]) -> Quality {
    let mut racks: BTreeMap<&str, i64> = machines.iter().map(|machine| (machine.rack.as_str(), 0)).collect();
    for machine in machines {
        *racks.get_mut(machine.rack.as_str()).unwrap() += machine.n;
    }
    let placed: i64 = machines.iter().map(|machine| machine.n).sum();
    let n_racks = size(racks.len());
    Quality {
        placed,
        nodes_used: size(machines.iter().filter(|machine| machine.n > 0 || machine.used.cpu > 0).count()),
        spread_error: racks.values().map(|n| (n * n_racks - placed).abs()).sum(),
    }
}

/// The score of one more allocation on a machine, as 5.4 and 5.5 say.
fn score(problem: &Problem, machines: &[Machine], at: usize) -> f64 {
    let machine = &machines[at];
    let mut parts = vec![fullness(Algorithm::Binpack, machine.total, machine.used.plus(problem.ask))];
    if machine.n > 0 {
        parts.push(-ratio(machine.n + 1, problem.count));
    }
    if problem.has_spread {
        let mut racks: BTreeMap<&str, i64> = BTreeMap::new();
        for other in machines.iter().filter(|other| other.n > 0) {
            *racks.entry(&other.rack).or_default() += other.n;
        }
        if let (Some(min), Some(max)) = (racks.values().min().copied(), racks.values().max().copied()) {
            let own = racks.get(machine.rack.as_str()).copied().unwrap_or(0);
            parts.push(match own {
                own if own != min => ratio(min - own, min),
                _ if min == max => -1.0,
                _ => ratio(max - min, min),
            });
        }
    }
    parts.iter().sum::<f64>() / ratio(size(parts.len()), 1)
}

fn has_room(problem: &Problem, machine: &Machine) -> bool {
    let after = machine.used.plus(problem.ask);
    after.cpu <= machine.total.cpu && after.memory_mb <= machine.total.memory_mb
}

/// Fills the cluster by samples: so many candidates for each placement, found by going round the shuffled nodes; scores
/// of at most zero are set aside, at most three of them.
fn sampled(mut problem: Problem, seed: u64) -> Quality {
    let n = problem.machines.len();
    let mut order: Vec<usize> = (0..n).collect();
    Rng::with_seed(seed ^ 0x5eed).shuffle(&mut order);
    let limit = if problem.has_spread {
        usize::try_from(problem.count).unwrap().max(100)
    } else {
        2.max(usize::try_from((n - 1).ilog2() + 1).unwrap())
    };
    let mut machines = std::mem::take(&mut problem.machines);
    let mut offset = 0;
    for _ in 0..problem.count {
        let (mut good, mut aside, mut looked) = (Vec::new(), Vec::new(), 0);
        while looked < n && good.len() < limit {
            let at = order[(offset + looked) % n];
            looked += 1;
            if !has_room(&problem, &machines[at]) {
                continue;
            }
            let score = score(&problem, &machines, at);
            if score <= 0.0 && aside.len() < 3 { aside.push((score, at)) } else { good.push((score, at)) }
        }
        offset = (offset + looked) % n;
        if good.is_empty() {
            good = aside;
        }
        let best = good.into_iter().reduce(|best, next| if next.0 > best.0 { next } else { best });
        let Some((_, at)) = best else { break };
        machines[at].used = machines[at].used.plus(problem.ask);
        machines[at].n += 1;
    }
    quality(&machines)
}

/// Fills the cluster by the scheduler.
fn exact(mut problem: Problem, seed: u64) -> Quality {
    let mut one = spec(problem.count);
    one["groups"][0]["tasks"][0]["resources"] = json!({ "cpu": problem.ask.cpu, "memoryMB": problem.ask.memory_mb });
    if problem.has_spread {
        one["spreads"] = json!([{ "attribute": "${meta.rack}" }]);
    }
    let mut world = World::without_nodes(&one);
    for machine in &problem.machines {
        let mut made = node(&machine.name);
        made.allocatable = machine.total;
        made.meta.insert("rack".into(), machine.rack.clone());
        world.view.put_node(made);
        let held: AllocatedResources = serde_json::from_value(
            json!({ "tasks": { "t": { "cpu": machine.used.cpu, "memoryMB": machine.used.memory_mb } } }),
        )
        .unwrap();
        world.allocs([0], |alloc| {
            alloc.key = JobKey::new("shop", format!("load-{}", machine.name));
            (alloc.job, alloc.node) = (JobKey::new("shop", "load"), machine.name.as_str().into());
            alloc.resources = Arc::new(held.clone());
        });
    }
    let eval = Evaluation {
        id: "e".into(),
        job: key(),
        trigger: EvalTrigger::JobRegister,
        priority: 50,
        now: now(),
        wait_until: None,
    };
    let plan = crate::scheduler::plan(&world.view, &eval, &mut Rng::with_seed(seed));
    for placement in &plan.placements {
        let machine = problem.machines.iter_mut().find(|machine| machine.name == placement.node.as_str()).unwrap();
        machine.n += 1;
    }
    quality(&problem.machines)
}

/// What two ways of placing reach, in a number of which less is better.
#[derive(Default)]
struct Comparison {
    n: i64,
    better_or_equal: i64,
    exact: i64,
    sampled: i64,
    worst: (i64, u64),
}

impl Comparison {
    fn add(&mut self, seed: u64, exact: i64, sampled: i64) {
        self.n += 1;
        self.better_or_equal += i64::from(exact <= sampled);
        self.exact += exact;
        self.sampled += sampled;
        self.worst = self.worst.max((exact - sampled, seed));
    }

    #[expect(clippy::print_stdout, reason = "the figures are what the test is for")]
    fn check(&self, what: &str) {
        let share = ratio(self.better_or_equal, self.n);
        println!(
            "{what}: better or equal on {:.1} % of {}, mean {:.3} against {:.3}, worst by {} (seed {})",
            100.0 * share,
            self.n,
            ratio(self.exact, self.n),
            ratio(self.sampled, self.n),
            self.worst.0,
            self.worst.1
        );
        assert!(share >= 0.95, "{what}: only {share} of the clusters");
        assert!(self.exact < self.sampled, "{what}: {} against {}", self.exact, self.sampled);
    }
}

#[test]
fn exact_placements_use_fewer_nodes_and_spread_better_than_samples() {
    let (mut nodes, mut spread) = (Comparison::default(), Comparison::default());
    for seed in 0..CLUSTERS {
        let (exact, sampled) = (exact(problem(seed), seed), sampled(problem(seed), seed));
        assert!(exact.placed >= sampled.placed, "seed {seed}: {exact:?} {sampled:?}");
        if problem(seed).has_spread {
            spread.add(seed, exact.spread_error, sampled.spread_error);
        } else {
            nodes.add(seed, exact.nodes_used, sampled.nodes_used);
        }
    }
    nodes.check("nodes used");
    spread.check("spread error");
}
