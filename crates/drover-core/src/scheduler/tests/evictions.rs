//! On which of several full nodes others give way (`spec/scheduler.md` 5.4, 5.6 and 6), beside an oracle that looks at
//! every node again for each placement.

use std::collections::BTreeSet;

use fastrand::Rng;

use super::victims::{Holder, Problem, read_slowly};
use super::*;
use crate::settings::{Preemption, Settings};

/// The priority of the job that is placed.
const PRIORITY: i64 = 60;
/// The disk that a group asks for where it does not say.
const DISK: i64 = 300;

/// A node and all that is on it.
#[derive(Clone, Debug)]
struct Crowded {
    name: String,
    rack: &'static str,
    total: [i64; 3],
    holders: Vec<Holder>,
    /// What an allocation of another job holds that is to stop already and still runs.
    stopping: [i64; 3],
    /// Allocations of the job that were placed there.
    own: i64,
}

#[derive(Clone, Debug)]
struct Crowd {
    nodes: Vec<Crowded>,
    ask: [i64; 3],
    count: i64,
    is_spread: bool,
    /// The node on which slot 0 failed.
    failed_on: Option<String>,
}

fn crowd(rng: &mut Rng) -> Crowd {
    let ask = [rng.i64(200..900), rng.i64(200..900), DISK];
    let nodes = (0..rng.usize(1..6)).map(|n| {
        let holders: Vec<Holder> = (0..rng.usize(0..8))
            .map(|h| Holder {
                name: format!("{}-{n}-{h}", ["a", "b"][rng.usize(..2)]),
                priority: [10, 20, 30, 50, 55][rng.usize(..5)],
                held: [rng.i64(50..500), rng.i64(50..500), 0],
                max_parallel: 0,
                already: 0,
            })
            .collect();
        let stopping = if rng.u8(..3) == 0 { [rng.i64(50..500), rng.i64(50..500), 0] } else { [0; 3] };
        let held = |at: usize| holders.iter().map(|one| one.held[at]).sum::<i64>() + stopping[at];
        let total = [held(0) + rng.i64(0..400), held(1) + rng.i64(0..400), 1_000_000];
        Crowded { name: format!("m-{n}"), rack: ["r1", "r2"][rng.usize(..2)], total, holders, stopping, own: 0 }
    });
    let mut nodes: Vec<Crowded> = nodes.collect();
    // How many of a job may move at once is the same for all of its allocations.
    let mut most: BTreeMap<String, i64> = BTreeMap::new();
    for holder in nodes.iter_mut().flat_map(|node| &mut node.holders) {
        holder.max_parallel = *most.entry(job_of(holder)).or_insert_with(|| rng.i64(0..3));
    }
    let failed_on = rng.bool().then(|| nodes[rng.usize(..nodes.len())].name.clone());
    Crowd { nodes, ask, count: rng.i64(1..7), is_spread: rng.u8(..3) == 0, failed_on }
}

/// The job of an allocation that may give way: two of each priority.
fn job_of(holder: &Holder) -> String {
    format!("{}-{}", &holder.name[..1], holder.priority)
}

/// The same as a cluster in which services evict others.
fn world(crowd: &Crowd) -> World {
    let mut one = spec(crowd.count);
    one["priority"] = json!(PRIORITY);
    one["groups"][0]["tasks"][0]["resources"] = json!({ "cpu": crowd.ask[0], "memoryMB": crowd.ask[1] });
    if crowd.is_spread {
        one["spreads"] = json!([{ "attribute": "${meta.rack}" }]);
    }
    let one = with(one, "reschedule", json!({ "delay": "5s", "delayFunction": "constant", "unlimited": true }));
    let mut world = World::without_nodes(&one);
    for at in &crowd.nodes {
        let [cpu, memory_mb, disk_mb] = at.total;
        let meta = BTreeMap::from([("rack".to_owned(), at.rack.to_owned())]);
        world.view.put_node(Node { allocatable: Amounts { cpu, memory_mb, disk_mb }, meta, ..node(&at.name) });
        for holder in &at.holders {
            put(&mut world, &at.name, holder, DesiredStatus::Run);
        }
        if at.stopping != [0; 3] {
            let name = format!("c-{}", at.name);
            let stopping = Holder { name, priority: 10, held: at.stopping, max_parallel: 0, already: 0 };
            put(&mut world, &at.name, &stopping, DesiredStatus::Stop);
        }
    }
    if let Some(name) = &crowd.failed_on {
        world.allocs([0], |alloc| {
            (alloc.node, alloc.client) = (name.as_str().into(), ClientStatus::Failed);
            alloc.last_event_at = now() - SignedDuration::from_secs(60);
        });
    }
    let preemption = Preemption { service: true, ..Preemption::default() };
    world.view.set_settings(Settings { preemption, ..Settings::default() });
    world
}

/// An allocation of the job of its priority; some are to stop already.
fn put(world: &mut World, on: &str, holder: &Holder, desired: DesiredStatus) {
    let name = job_of(holder);
    let mut low = with(spec(9), "migrate", json!({ "maxParallel": holder.max_parallel }));
    low["priority"] = json!(holder.priority);
    let (job, uid) = (JobKey::new("shop", name.as_str()), Uid::from(name));
    world.view.put_version(job.clone(), uid.clone(), 1, Definition::new(&serde_json::from_value(low).unwrap(), "low"));
    let held = json!({ "tasks": { "t": { "cpu": holder.held[0], "memoryMB": holder.held[1] } } });
    let held: Arc<AllocatedResources> = Arc::new(serde_json::from_value(held).unwrap());
    world.allocs([0], |alloc| {
        alloc.key = JobKey::new("shop", holder.name.as_str());
        (alloc.job, alloc.job_uid, alloc.node) = (job.clone(), uid.clone(), on.into());
        (alloc.resources, alloc.desired) = (Arc::clone(&held), desired);
    });
}

fn f(number: i64) -> f64 {
    f64::from(i32::try_from(number).unwrap())
}

impl Crowd {
    fn used(&self, at: &Crowded) -> [i64; 3] {
        [0, 1, 2].map(|dimension| {
            let held: i64 = at.holders.iter().map(|one| one.held[dimension]).sum();
            held + at.stopping[dimension] + at.own * self.ask[dimension]
        })
    }

    fn has_room(&self, at: &Crowded) -> bool {
        let used = self.used(at);
        (0..3).all(|dimension| used[dimension] + self.ask[dimension] <= at.total[dimension])
    }

    /// Who gives way on a node; nothing where there is room, or where all that may go are not enough.
    fn victims(&self, at: &Crowded) -> Option<Vec<String>> {
        let fixed = [0, 1, 2].map(|dimension| at.stopping[dimension] + at.own * self.ask[dimension]);
        let holders = at.holders.clone();
        read_slowly(&Problem { holders, total: at.total, fixed, ask: self.ask, priority: PRIORITY })
    }

    /// The mean of what contributes, victims still counted as used.
    fn score(&self, at: &Crowded, victims: &[String], is_penalised: bool) -> f64 {
        let used = self.used(at);
        let free = [0, 1].map(|dimension| 1.0 - f(used[dimension] + self.ask[dimension]) / f(at.total[dimension]));
        let powers = 10_f64.powf(free[0]) + 10_f64.powf(free[1]);
        let mut parts = vec![(20.0 - powers).clamp(0.0, 18.0) / 18.0];
        parts.extend((at.own > 0).then(|| -f(at.own + 1) / f(self.count)));
        parts.extend(is_penalised.then_some(-1.0));
        parts.extend(self.is_spread.then(|| self.evenness(at)).filter(|even| *even != 0.0));
        let priorities = || at.holders.iter().filter(|one| victims.contains(&one.name)).map(|one| one.priority);
        if let Some(highest) = priorities().max() {
            let p = f(highest) + f(priorities().sum()) / f(highest);
            parts.push(1.0 / (1.0 + (0.0048 * (p - 2048.0)).exp()));
        }
        parts.iter().sum::<f64>() / f(i64::try_from(parts.len()).unwrap())
    }

    /// The row of an even spread over two racks.
    fn evenness(&self, at: &Crowded) -> f64 {
        let on = |rack: &str| self.nodes.iter().filter(|other| other.rack == rack).map(|other| other.own).sum::<i64>();
        let in_use: Vec<i64> = ["r1", "r2"].map(on).into_iter().filter(|n| *n > 0).collect();
        let (Some(min), Some(max)) = (in_use.iter().min(), in_use.iter().max()) else { return 0.0 };
        match on(at.rack) {
            here if here != *min => f(min - here) / f(*min),
            _ if min == max => -1.0,
            _ => f(max - min) / f(*min),
        }
    }

    /// The nodes that may be chosen now, with their scores and victims: those with room if there are any.
    fn options(&self, penalised: Option<&str>) -> Vec<(&Crowded, f64, Vec<String>)> {
        let is_penalised = |at: &Crowded| penalised == Some(at.name.as_str());
        let with_room = self.nodes.iter().filter(|at| self.has_room(at));
        let with_room: Vec<_> = with_room.map(|at| (at, self.score(at, &[], is_penalised(at)), Vec::new())).collect();
        if !with_room.is_empty() {
            return with_room;
        }
        let given_way = self.nodes.iter().filter_map(|at| Some((at, self.victims(at)?)));
        given_way.map(|(at, victims)| (at, self.score(at, &victims, is_penalised(at)), victims)).collect()
    }

    fn place(&mut self, name: &str, victims: &[String]) {
        let at = self.nodes.iter_mut().find(|at| at.name == name).unwrap();
        at.own += 1;
        let gone: Vec<Holder> = at.holders.extract_if(.., |one| victims.contains(&one.name)).collect();
        for holder in self.nodes.iter_mut().flat_map(|at| &mut at.holders) {
            let n = gone.iter().filter(|one| job_of(one) == job_of(holder)).count();
            holder.already += i64::try_from(n).unwrap();
        }
    }
}

#[test]
fn others_give_way_on_a_node_than_which_no_other_scores_better() {
    let mut rng = Rng::with_seed(56);
    let (mut n_evicting, mut n_again) = (0, 0);
    for case in 0..3_000 {
        let mut crowd = crowd(&mut rng);
        let plan = world(&crowd).plan();
        for placement in &plan.placements {
            let penalised = crowd.failed_on.clone().filter(|_| placement.previous.is_some());
            let options = crowd.options(penalised.as_deref());
            let best = options.iter().map(|(_, score, _)| *score).fold(f64::MIN, f64::max);
            let name = placement.node.as_str();
            let Some((_, score, wanted)) = options.iter().find(|(at, ..)| at.name == name) else {
                panic!("case {case}: {name} is not one of {options:?}\n{crowd:?}");
            };
            let victims: Vec<String> = placement.preempts.iter().map(|one| one.key.name.to_string()).collect();
            assert_eq!(&victims, wanted, "case {case}: on {name}\n{crowd:?}");
            assert!(*score > best - 1e-9, "case {case}: {name} scores {score} of {best}\n{crowd:?}");
            assert!(
                (placement.score() - score).abs() < 1e-9,
                "case {case}: recorded as {}\n{crowd:?}",
                placement.score()
            );
            n_again += usize::from(n_evicting > 0 && !victims.is_empty());
            n_evicting += usize::from(!victims.is_empty());
            crowd.place(name, &victims);
        }
        if !plan.failed.is_empty() {
            assert!(crowd.options(None).is_empty(), "case {case}: there was a place\n{crowd:?}");
        }
    }
    assert!(n_evicting > 2_000 && n_again > 1_000, "{n_evicting} evicting, {n_again} of them after others");
}

/// Nodes of one size, each full of one allocation of another job.
fn alike(names: &[&str]) -> Crowd {
    let nodes = names.iter().map(|name| Crowded {
        name: (*name).to_owned(),
        rack: "r1",
        total: [1_000, 1_000, 1_000_000],
        holders: vec![Holder {
            name: format!("h-{name}"),
            priority: 10,
            held: [1_000, 1_000, 0],
            max_parallel: 0,
            already: 0,
        }],
        stopping: [0; 3],
        own: 0,
    });
    Crowd { nodes: nodes.collect(), ask: [500, 500, DISK], count: 1, is_spread: false, failed_on: None }
}

#[test]
fn s_100_of_full_nodes_too_the_one_on_which_it_failed_is_the_last_choice() {
    for (failed_on, other) in [("m-1", "m-2"), ("m-2", "m-1")] {
        let crowd = Crowd { failed_on: Some(failed_on.to_owned()), ..alike(&["m-1", "m-2"]) };
        let plan = world(&crowd).plan();
        let placed = &plan.placements[0];
        assert_eq!((placed.node.as_str(), &*placed.preempts[0].key.name), (other, format!("h-{other}").as_str()));
        assert_eq!(placed.metrics.best[0].1.penalty, None);
        // Where there is no other node it is taken after all, and the penalty shows.
        let alone = Crowd { failed_on: Some(failed_on.to_owned()), ..alike(&[failed_on]) };
        let plan = world(&alone).plan();
        assert_eq!(plan.placements[0].node.as_str(), failed_on);
        assert_eq!(plan.placements[0].metrics.best[0].1.penalty, Some(-1.0));
    }
}

#[test]
fn of_equal_full_nodes_each_is_taken_in_some_evaluation() {
    let world = world(&alike(&["m-1", "m-2", "m-3"]));
    let taken = |seed: u64| {
        let plan = crate::scheduler::plan(&world.view, &world.evaluation(), &mut Rng::with_seed(seed));
        plan.placements[0].node.to_string()
    };
    let all: BTreeSet<String> = (0..50).map(taken).collect();
    assert_eq!(all.iter().map(String::as_str).collect::<Vec<_>>(), ["m-1", "m-2", "m-3"]);
}

#[test]
fn of_full_nodes_the_one_whose_devices_match_best_is_taken() {
    let gpus = |world: &mut World, on: &str, model: &str| {
        let group = json!({ "vendor": "nvidia", "type": "gpu", "name": model,
            "instances": [{ "id": model, "healthy": true }] });
        let known = (**world.view.node(&on.into()).unwrap()).clone();
        world.view.put_node(Node { devices: vec![serde_json::from_value(group).unwrap()], ..known });
        let holder = (**world.view.alloc(&JobKey::new("shop", format!("h-{on}"))).unwrap()).clone();
        let held = json!({ "tasks": { "t": { "cpu": 1000, "memoryMB": 1000,
            "devices": [{ "vendor": "nvidia", "type": "gpu", "name": model, "ids": [model] }] } } });
        world.view.put_alloc(Alloc { resources: Arc::new(serde_json::from_value(held).unwrap()), ..holder });
    };
    for (likes, weight, wanted, score) in
        [("a100", 50, "m-1", 1.0), ("t4", 50, "m-2", 1.0), ("t4", -50, "m-1", 0.0), ("a100", -50, "m-2", 0.0)]
    {
        let mut world = world(&alike(&["m-1", "m-2"]));
        gpus(&mut world, "m-1", "a100");
        gpus(&mut world, "m-2", "t4");
        let mut spec = world.job.definition.spec.clone();
        let affinity = json!({ "lTarget": "${device.model}", "operand": "=", "rTarget": likes, "weight": weight });
        let request = json!({ "name": "gpu", "count": 1, "affinities": [affinity] });
        spec.groups[0].tasks[0].resources.devices = vec![serde_json::from_value(request).unwrap()];
        world.job.definition = Definition::new(&spec, "web");
        world.put_job();
        let plan = world.plan();
        let placed = &plan.placements[0];
        assert_eq!(placed.node.as_str(), wanted, "{likes} {weight}");
        assert_eq!(placed.metrics.best[0].1.devices, Some(score), "{likes} {weight}");
        assert_eq!(placed.preempts.len(), 1);
    }
}
