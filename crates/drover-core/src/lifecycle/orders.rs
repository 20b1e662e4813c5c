//! Properties of the lifecycle as a whole: whatever tasks a group has and in whatever order things happen, the order
//! rules hold and every task ends.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{Coordinator, Gates, Progress, Reaction, RunState, Stage, TaskPlace, kill_stages, react};

/// What may happen to a task, chosen by a number.
#[derive(Clone, Copy, Debug)]
struct Choice {
    task: usize,
    what: u8,
}

/// A group of tasks as an allocation's runner sees it, with processes that obey at once.
struct Group {
    places: BTreeMap<String, TaskPlace>,
    progress: BTreeMap<String, Progress>,
    coordinator: Coordinator,
    gates: Gates,
    /// Tasks that are to be killed.
    killed: BTreeSet<String>,
    /// Stages that are still to be killed.
    stages: Vec<Vec<String>>,
    is_killing: bool,
    is_released: bool,
    started: Vec<String>,
}

impl Group {
    fn new(tasks: &[(Stage, bool)]) -> Self {
        let places: BTreeMap<String, TaskPlace> = tasks
            .iter()
            .enumerate()
            .map(|(n, (stage, leader))| (format!("t{n}"), TaskPlace { stage: *stage, leader: *leader }))
            .collect();
        let coordinator = Coordinator::new(places.iter().map(|(name, place)| (name.as_str(), *place)));
        let progress = places.keys().map(|name| (name.clone(), Progress::PENDING)).collect();
        let mut group = Self {
            places,
            progress,
            coordinator,
            gates: Gates::default(),
            killed: BTreeSet::new(),
            stages: Vec::new(),
            is_killing: false,
            is_released: false,
            started: Vec::new(),
        };
        group.settle();
        group
    }

    fn settle(&mut self) {
        let judged = self.places.iter().map(|(name, place)| (name.clone(), (*place, self.progress[name]))).collect();
        match react(&judged) {
            Reaction::Continue => {}
            Reaction::Kill { .. } => self.stop(),
            Reaction::AllDead => self.is_released = true,
        }
        self.gates = self.coordinator.observe(&self.progress);
        if self.is_killing {
            self.gates = self.gates.while_killing();
        }
        // The next stage is killed once the one before is dead.
        while self.killed.iter().all(|name| self.progress[name].state == RunState::Dead) && !self.stages.is_empty() {
            self.killed.extend(self.stages.remove(0));
        }
    }

    fn stop(&mut self) {
        if !std::mem::replace(&mut self.is_killing, true) {
            self.stages = kill_stages(&self.places);
        }
    }

    fn step(&mut self, choice: Choice) {
        let Some(name) = self.places.keys().nth(choice.task % self.places.len()).cloned() else { return };
        match choice.what % 16 {
            5 => return self.restart_agent(),
            6 => return self.restart_all(),
            _ => {}
        }
        let (place, now) = (self.places[&name], self.progress[&name]);
        let is_killed = self.killed.contains(&name);
        let dead = |failed| Progress { state: RunState::Dead, failed };
        let next = match (now.state, choice.what % 8) {
            (RunState::Pending | RunState::Running, _) if is_killed => dead(false),
            (RunState::Pending, _) if self.gates.is_open(place.stage) => {
                self.check_start(&name, place.stage);
                self.started.push(name.clone());
                Progress { state: RunState::Running, failed: false }
            }
            (RunState::Running, 0) => dead(true),
            (RunState::Running, 1..=3) if !place.stage.is_sidecar() => dead(false),
            (RunState::Running, 4) => Progress::PENDING,
            (RunState::Pending | RunState::Running | RunState::Dead, _) => now,
        };
        self.progress.insert(name, next);
        self.settle();
    }

    /// The agent dies and another one takes up the tasks as they are. What it was killing it kills again.
    fn restart_agent(&mut self) {
        self.coordinator = Coordinator::restored(self.places.iter().map(|(name, place)| (name.as_str(), *place)));
        if std::mem::take(&mut self.is_killing) {
            self.killed.clear();
            self.stop();
        }
        self.settle();
    }

    /// A user asks for everything once more, while something lives that is not being ended.
    fn restart_all(&mut self) {
        if self.is_killing || self.is_released {
            return;
        }
        for (name, place) in &self.places {
            if place.stage != Stage::Poststop {
                self.progress.insert(name.clone(), Progress::PENDING);
            }
        }
        self.started.clear();
        self.coordinator.reset();
        self.settle();
    }

    /// The rules of the order, told without the coordinator.
    fn check_start(&self, name: &str, stage: Stage) {
        let of = |wanted: Stage| self.places.iter().filter(move |(_, place)| place.stage == wanted);
        let is_first = !self.started.iter().any(|started| started == name);
        match stage {
            Stage::PrestartEphemeral | Stage::PrestartSidecar => {}
            Stage::Main | Stage::PoststartEphemeral | Stage::PoststartSidecar => {
                for (other, _) in of(Stage::PrestartEphemeral) {
                    assert!(self.progress[other].is_done_well(), "{name} starts before {other} is done");
                }
                for (other, _) in of(Stage::PrestartSidecar).filter(|_| is_first) {
                    assert!(self.started.contains(other), "{name} starts before {other} ran");
                }
                if stage != Stage::Main && is_first {
                    for (other, _) in of(Stage::Main) {
                        assert!(self.started.contains(other), "{name} starts before {other} ran");
                    }
                }
            }
            Stage::Poststop => {
                for (other, place) in &self.places {
                    let is_dead = self.progress[other].state == RunState::Dead;
                    assert!(place.stage == Stage::Poststop || is_dead, "{name} starts while {other} lives");
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        self.progress.values().all(|task| task.state == RunState::Dead)
    }
}

fn stages() -> impl Strategy<Value = Vec<(Stage, bool)>> {
    let stage = proptest::sample::select(Stage::ALL.to_vec());
    let task =
        (stage, proptest::bool::weighted(0.15)).prop_map(|(stage, leader)| (stage, leader && stage == Stage::Main));
    proptest::collection::vec(task, 1..8)
}

fn choices() -> impl Strategy<Value = Vec<Choice>> {
    proptest::collection::vec((0_usize..64, any::<u8>()).prop_map(|(task, what)| Choice { task, what }), 0..200)
}

proptest! {
    #[test]
    fn the_order_holds_and_all_tasks_end(tasks in stages(), happened in choices(), stop_at in 0_usize..200) {
        let mut group = Group::new(&tasks);
        for (n, choice) in happened.iter().enumerate() {
            if n == stop_at {
                group.stop();
                group.settle();
            }
            group.step(*choice);
        }
        group.stop();
        group.settle();
        // From here on every process ends by itself; each round moves every task at least once.
        for round in 0..4 * (tasks.len() + 2) {
            for task in 0..tasks.len() {
                group.step(Choice { task, what: 1 + u8::try_from(round % 3).unwrap_or(0) });
            }
        }
        prop_assert!(group.is_over(), "{tasks:?}: {:?}", group.progress);
        prop_assert!(group.is_released);
    }
}
