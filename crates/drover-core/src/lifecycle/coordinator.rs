//! Opens the gates at which tasks wait, so that prestart, main, poststart and poststop tasks run in their order.
//!
//! Input: every change of a task's state. Output: the gates that are open now. The state only moves forward, except by
//! [`Coordinator::reset`]; it must never know why a task changed.

use std::collections::BTreeMap;

use super::{Progress, RunState, Stage, TaskPlace};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LifecyclePhase {
    Init,
    Prestart,
    Main,
    Poststart,
    WaitAlloc,
    Poststop,
}

/// Which gates are open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gates {
    open: [bool; 6],
}

impl Gates {
    /// Whether a task of this stage may start.
    pub fn is_open(self, stage: Stage) -> bool {
        self.open[stage as usize]
    }

    /// The same while the group is being ended: nothing starts that would be killed next, only what follows on the end.
    #[must_use]
    pub fn while_killing(mut self) -> Self {
        for stage in Stage::ALL.into_iter().filter(|stage| *stage != Stage::Poststop) {
            self.open[stage as usize] = false;
        }
        self
    }
}

/// The lifecycle of one allocation's tasks.
#[derive(Clone, Debug)]
pub struct Coordinator {
    state: LifecyclePhase,
    stages: BTreeMap<String, Stage>,
}

impl Coordinator {
    /// A coordinator for tasks that have not started.
    pub fn new<'a>(tasks: impl IntoIterator<Item = (&'a str, TaskPlace)>) -> Self {
        let stages = tasks.into_iter().map(|(name, place)| (name.to_owned(), place.stage)).collect();
        Self { state: LifecyclePhase::Init, stages }
    }

    /// A coordinator for tasks some of which ran before the agent started: nothing waits for all of them to be pending.
    pub fn restored<'a>(tasks: impl IntoIterator<Item = (&'a str, TaskPlace)>) -> Self {
        Self { state: LifecyclePhase::Prestart, ..Self::new(tasks) }
    }

    /// Begins the lifecycle again: the order holds once more for tasks that are pending again.
    pub fn reset(&mut self) {
        self.state = LifecyclePhase::Init;
    }

    /// Takes the tasks' states into account and returns the gates. A task that is not in `progress` counts as pending.
    /// O(tasks).
    pub fn observe(&mut self, progress: &BTreeMap<String, Progress>) -> Gates {
        loop {
            let next = self.next(progress);
            if next == self.state {
                return gates(self.state);
            }
            self.state = next;
        }
    }

    fn next(&self, progress: &BTreeMap<String, Progress>) -> LifecyclePhase {
        let others_dead = self.all(progress, |stage, task| stage == Stage::Poststop || task.state == RunState::Dead);
        if others_dead {
            return LifecyclePhase::Poststop;
        }
        let (done, next) = match self.state {
            LifecyclePhase::Init => {
                (self.all(progress, |_, task| task.state == RunState::Pending), LifecyclePhase::Prestart)
            }
            LifecyclePhase::Prestart => (self.is_prestart_done(progress), LifecyclePhase::Main),
            LifecyclePhase::Main => (
                self.all(progress, |stage, task| stage != Stage::Main || task.state != RunState::Pending),
                LifecyclePhase::Poststart,
            ),
            LifecyclePhase::Poststart => (
                self.all(progress, |stage, task| stage != Stage::PoststartEphemeral || task.state == RunState::Dead),
                LifecyclePhase::WaitAlloc,
            ),
            LifecyclePhase::WaitAlloc => (false, LifecyclePhase::WaitAlloc),
            LifecyclePhase::Poststop => (false, LifecyclePhase::Poststop),
        };
        if done { next } else { self.state }
    }

    fn is_prestart_done(&self, progress: &BTreeMap<String, Progress>) -> bool {
        self.all(progress, |stage, task| match stage {
            Stage::PrestartEphemeral => task.is_done_well(),
            Stage::PrestartSidecar => task.state == RunState::Running,
            Stage::Main | Stage::PoststartEphemeral | Stage::PoststartSidecar | Stage::Poststop => true,
        })
    }

    fn all(&self, progress: &BTreeMap<String, Progress>, holds: impl Fn(Stage, Progress) -> bool) -> bool {
        self.stages.iter().all(|(name, stage)| holds(*stage, progress.get(name).copied().unwrap_or(Progress::PENDING)))
    }
}

fn gates(state: LifecyclePhase) -> Gates {
    //                  Pe     Ps     M      Oe     Os     X
    let open = match state {
        LifecyclePhase::Init => [false, false, false, false, false, false],
        LifecyclePhase::Prestart => [true, true, false, false, false, false],
        LifecyclePhase::Main => [false, true, true, false, false, false],
        LifecyclePhase::Poststart => [false, true, true, true, true, false],
        LifecyclePhase::WaitAlloc => [false, true, true, false, true, false],
        LifecyclePhase::Poststop => [false, false, false, false, false, true],
    };
    Gates { open }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RunState::{Dead, Pending, Running};

    fn place(stage: Stage) -> TaskPlace {
        TaskPlace { stage, leader: false }
    }

    fn tasks() -> Vec<(&'static str, TaskPlace)> {
        vec![
            ("init", place(Stage::PrestartEphemeral)),
            ("side", place(Stage::PrestartSidecar)),
            ("web", place(Stage::Main)),
            ("warm", place(Stage::PoststartEphemeral)),
            ("tail", place(Stage::PoststartSidecar)),
            ("clean", place(Stage::Poststop)),
        ]
    }

    fn progress(states: &[(&str, RunState, bool)]) -> BTreeMap<String, Progress> {
        states
            .iter()
            .map(|(name, state, failed)| ((*name).to_owned(), Progress { state: *state, failed: *failed }))
            .collect()
    }

    fn open(coordinator: &mut Coordinator, states: &[(&str, RunState, bool)]) -> String {
        let gates = coordinator.observe(&progress(states));
        Stage::ALL
            .into_iter()
            .zip(["Pe", "Ps", "M", "Oe", "Os", "X"])
            .filter(|(stage, _)| gates.is_open(*stage))
            .map(|(_, name)| name)
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn a_102_main_opens_only_after_init_ended_well_and_the_sidecar_runs() {
        let mut it = Coordinator::new(tasks());
        assert_eq!(open(&mut it, &[]), "Pe Ps");
        assert_eq!(open(&mut it, &[("side", Running, false)]), "Pe Ps");
        assert_eq!(open(&mut it, &[("side", Running, false), ("init", Running, false)]), "Pe Ps");
        assert_eq!(open(&mut it, &[("side", Running, false), ("init", Dead, false)]), "Ps M");
    }

    #[test]
    fn a_103_a_failed_init_task_keeps_main_closed() {
        let two = [
            ("one", place(Stage::PrestartEphemeral)),
            ("two", place(Stage::PrestartEphemeral)),
            ("web", place(Stage::Main)),
        ];
        let mut it = Coordinator::new(two);
        assert_eq!(open(&mut it, &[]), "Pe Ps");
        assert_eq!(open(&mut it, &[("one", Dead, true), ("two", Dead, false)]), "Pe Ps");
    }

    #[test]
    fn a_104_main_waits_for_the_sidecar() {
        let mut it = Coordinator::new(tasks());
        assert_eq!(open(&mut it, &[]), "Pe Ps");
        assert_eq!(open(&mut it, &[("init", Dead, false)]), "Pe Ps");
    }

    #[test]
    fn a_105_restore_goes_where_the_tasks_are() {
        let mut it = Coordinator::restored(tasks());
        let states =
            [("init", Dead, false), ("side", Running, false), ("web", Running, false), ("warm", Pending, false)];
        assert_eq!(open(&mut it, &states), "Ps M Oe Os");
    }

    #[test]
    fn a_106_poststop_opens_once_all_others_are_dead_from_any_state() {
        let mut it = Coordinator::new(tasks());
        assert_eq!(open(&mut it, &[]), "Pe Ps");
        let dead = [
            ("init", Dead, true),
            ("side", Dead, false),
            ("web", Dead, false),
            ("warm", Dead, false),
            ("tail", Dead, false),
        ];
        assert_eq!(open(&mut it, &dead), "X");
    }

    #[test]
    fn after_poststart_only_sidecars_and_main_may_start_again() {
        let mut it = Coordinator::restored(tasks());
        let states = [
            ("init", Dead, false),
            ("side", Running, false),
            ("web", Running, false),
            ("warm", Dead, false),
            ("tail", Running, false),
        ];
        assert_eq!(open(&mut it, &states), "Ps M Os");
        let between_restarts = [
            ("init", Dead, false),
            ("side", Pending, false),
            ("web", Pending, false),
            ("warm", Dead, false),
            ("tail", Running, false),
        ];
        assert_eq!(open(&mut it, &between_restarts), "Ps M Os", "a sidecar that dies during main closes no gate");
    }

    #[test]
    fn a_reset_repeats_the_order() {
        let mut it = Coordinator::new([("init", place(Stage::PrestartEphemeral)), ("web", place(Stage::Main))]);
        assert_eq!(
            open(&mut it, &[("init", Dead, false), ("web", Running, false)]),
            "",
            "init needs all pending first"
        );
        assert_eq!(open(&mut it, &[]), "Pe Ps");
        assert_eq!(open(&mut it, &[("init", Dead, false), ("web", Running, false)]), "Ps M Os");
        it.reset();
        assert_eq!(open(&mut it, &[("init", Pending, false), ("web", Running, false)]), "");
        assert_eq!(open(&mut it, &[("init", Pending, false), ("web", Pending, false)]), "Pe Ps");
    }

    #[test]
    fn no_prestart_tasks_open_main_at_once() {
        let mut it = Coordinator::new([("web", place(Stage::Main))]);
        assert_eq!(open(&mut it, &[]), "Ps M");
    }
}
