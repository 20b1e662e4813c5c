//! Whom a plan evicts on one node, beside a slow reading of `spec/scheduler.md` 6.

use fastrand::Rng;

use super::*;
use crate::scheduler::preempt::{Evictable, PreemptionAsk, victims};
use crate::usage::Usage;

/// An allocation that is in the way, in numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Holder {
    pub(super) name: String,
    pub(super) priority: i64,
    pub(super) held: [i64; 3],
    pub(super) max_parallel: i64,
    pub(super) already: i64,
}

/// cpu, memory and disk.
fn amounts([cpu, memory_mb, disk_mb]: [i64; 3]) -> Amounts {
    Amounts { cpu, memory_mb, disk_mb }
}

#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) holders: Vec<Holder>,
    pub(super) total: [i64; 3],
    /// What is held by allocations that nobody may evict.
    pub(super) fixed: [i64; 3],
    pub(super) ask: [i64; 3],
    pub(super) priority: i64,
}

fn problem(rng: &mut Rng) -> Problem {
    let holders: Vec<Holder> = (0..rng.usize(0..7))
        .map(|n| Holder {
            name: format!("h-{n}"),
            priority: [10, 10, 20, 30, 45, 50][rng.usize(..6)],
            held: [rng.i64(100..900), rng.i64(100..900), if rng.bool() { 0 } else { rng.i64(100..900) }],
            max_parallel: rng.i64(0..3),
            already: rng.i64(0..3),
        })
        .collect();
    let fixed = [rng.i64(0..300), rng.i64(0..300), rng.i64(0..300)];
    let held = |at: usize| holders.iter().map(|one| one.held[at]).sum::<i64>() + fixed[at];
    let total = [held(0) + rng.i64(0..200), held(1) + rng.i64(0..200), held(2) + rng.i64(0..200)];
    let ask = [rng.i64(100..2000), rng.i64(50..1500), [0, rng.i64(0..800)][rng.usize(..2)]];
    Problem { holders, total, fixed, ask, priority: [50, 55, 60][rng.usize(..3)] }
}

fn chosen(problem: &Problem) -> Option<Vec<String>> {
    let mut used = Usage { amounts: amounts(problem.fixed), n_allocs: 1, ..Usage::default() };
    let evictable = problem.holders.iter().map(|holder| {
        let mut world = World::new(&spec(1));
        world.allocs([0], |alloc| alloc.key = JobKey::new("shop", holder.name.as_str()));
        let held = Usage { amounts: amounts(holder.held), n_allocs: 1, ..Usage::default() };
        used.add(&held);
        Evictable {
            alloc: Arc::clone(world.view.allocs().next().unwrap()),
            priority: holder.priority,
            held,
            max_parallel: holder.max_parallel,
            already: holder.already,
        }
    });
    let evictable: Vec<Evictable> = evictable.collect();
    let node = Node { allocatable: amounts(problem.total), ..node("n-0") };
    let world = World::new(&spec(1));
    let group = &world.job.definition.spec.groups[0];
    let ask = PreemptionAsk { priority: problem.priority, amounts: amounts(problem.ask), group };
    let found = victims(ask, &node, &used, &evictable, |left| {
        let free = node.allocatable.minus(left.amounts);
        free.cpu >= problem.ask[0] && free.memory_mb >= problem.ask[1] && free.disk_mb >= problem.ask[2]
    })?;
    Some(found.iter().map(|one| one.alloc.key.name.to_string()).collect())
}

fn f(number: i64) -> f64 {
    f64::from(i32::try_from(number).unwrap())
}

fn distance(ask: [i64; 3], used: [i64; 3]) -> f64 {
    let part = |at: usize| if ask[at] <= 0 { 0.0 } else { f(ask[at] - used[at]) / f(ask[at]) };
    (part(1).powi(2) + part(0).powi(2) + part(2).powi(2)).sqrt()
}

fn covers(free: [i64; 3], ask: [i64; 3]) -> bool {
    (0..3).all(|at| free[at] >= ask[at])
}

fn plus(one: [i64; 3], other: [i64; 3]) -> [i64; 3] {
    [0, 1, 2].map(|at| one[at] + other[at])
}

/// The table of 6, row by row: priorities ascending, each time the smallest distance to what is missing; then the
/// farthest from the whole ask are kept until it is met.
pub(super) fn read_slowly(problem: &Problem) -> Option<Vec<String>> {
    let mut pool: Vec<Holder> =
        problem.holders.iter().filter(|holder| holder.priority <= problem.priority - 10).cloned().collect();
    let held = problem.holders.iter().fold(problem.fixed, |sum, holder| plus(sum, holder.held));
    let free = [0, 1, 2].map(|at| problem.total[at] - held[at]);
    if covers(free, problem.ask) {
        return None;
    }
    let (mut freed, mut missing, mut picked) = (free, problem.ask, Vec::new());
    while !covers(freed, problem.ask) {
        let lowest = pool.iter().map(|holder| holder.priority).min()?;
        let far = |holder: &Holder| {
            let many = holder.max_parallel > 0 && holder.already >= holder.max_parallel;
            let penalty = if many { 50.0 * f(holder.already + 1 - holder.max_parallel) } else { 0.0 };
            distance(missing, holder.held) + penalty
        };
        let mut of_lowest: Vec<Holder> = pool.iter().filter(|holder| holder.priority == lowest).cloned().collect();
        of_lowest.sort_by(|a, b| far(a).total_cmp(&far(b)).then_with(|| a.name.cmp(&b.name)));
        let victim = of_lowest.swap_remove(0);
        pool.retain(|holder| holder.name != victim.name);
        freed = plus(freed, victim.held);
        missing = [0, 1, 2].map(|at| missing[at] - victim.held[at]);
        picked.push(victim);
    }
    picked.sort_by(|a, b| distance(problem.ask, b.held).total_cmp(&distance(problem.ask, a.held)));
    let (mut freed, mut needed) = (free, Vec::new());
    for victim in picked {
        if !covers(freed, problem.ask) {
            freed = plus(freed, victim.held);
            needed.push(victim.name);
        }
    }
    Some(needed)
}

#[test]
fn victims_are_those_of_the_table() {
    let mut rng = Rng::with_seed(6);
    let (mut found, mut in_vain) = (0, 0);
    for _ in 0..5_000 {
        let problem = problem(&mut rng);
        let (got, wanted) = (chosen(&problem), read_slowly(&problem));
        assert_eq!(got, wanted, "{problem:?}");
        match got {
            Some(names) => {
                found += 1;
                let is_victim = |holder: &&Holder| names.contains(&holder.name);
                let victims: Vec<&Holder> = problem.holders.iter().filter(is_victim).collect();
                assert!(victims.iter().all(|holder| holder.priority <= problem.priority - 10), "{problem:?}");
                let stays = problem.holders.iter().filter(|holder| !names.contains(&holder.name));
                let left = stays.fold(problem.fixed, |sum, holder| plus(sum, holder.held));
                let free = [0, 1, 2].map(|at| problem.total[at] - left[at]);
                assert!(covers(free, problem.ask), "{names:?} are not enough: {problem:?}");
            }
            None => in_vain += 1,
        }
    }
    assert!(found > 500 && in_vain > 500, "{found} found, {in_vain} not");
}

#[test]
fn a_few_victims_by_hand() {
    let holder = |name: &str, priority: i64, cpu: i64| Holder {
        name: name.into(),
        priority,
        held: [cpu, 0, 0],
        max_parallel: 0,
        already: 0,
    };
    let chosen_of = |holders: &[Holder], free: i64, ask: i64| {
        let total = holders.iter().map(|holder| holder.held[0]).sum::<i64>() + free;
        let holders = holders.to_vec();
        chosen(&Problem { holders, total: [total, 0, 0], fixed: [0; 3], ask: [ask, 0, 0], priority: 60 })
    };
    let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    // The closest in size of the lowest priority, although one of a higher priority would be closer.
    assert_eq!(chosen_of(&[holder("a", 10, 900), holder("b", 10, 500), holder("c", 20, 400)], 0, 400), names(&["b"]));
    // The lowest priorities go first, until there is room.
    assert_eq!(chosen_of(&[holder("a", 50, 500), holder("b", 10, 500)], 0, 500), names(&["b"]));
    // A priority of 51 is too close to 60.
    assert_eq!(chosen_of(&[holder("a", 51, 500)], 0, 500), None);
    assert_eq!(chosen_of(&[holder("a", 50, 500)], 0, 500), names(&["a"]));
    // Nobody is evicted in vain, nor where there is room.
    assert_eq!(chosen_of(&[holder("a", 10, 500)], 0, 501), None);
    assert_eq!(chosen_of(&[holder("a", 10, 500)], 500, 500), None);
    // An eviction beyond maxParallel of its group costs more than any distance.
    let crowded = Holder { max_parallel: 1, already: 1, ..holder("a", 10, 400) };
    assert_eq!(chosen_of(&[crowded, holder("b", 10, 900)], 0, 400), names(&["b"]));
}
