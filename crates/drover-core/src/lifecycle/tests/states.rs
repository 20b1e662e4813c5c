//! Gates, statuses and the order of a kill, for every state in which the tasks of a small group can be.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::lifecycle::{
    Coordinator, CutOff, DerivedStatus, Gates, Progress, RunState, Stage, StatusInput, TaskPlace, cut_off,
    derive_status, kill_stages,
};

const STATES: [Progress; 4] = [
    Progress::PENDING,
    Progress { state: RunState::Running, failed: false },
    Progress { state: RunState::Dead, failed: false },
    Progress { state: RunState::Dead, failed: true },
];

/// Every way in which so many tasks can stand.
fn every(n: usize) -> Vec<Vec<Progress>> {
    (0..n).fold(vec![Vec::new()], |all, _| {
        all.iter().flat_map(|known| STATES.map(|state| [known.as_slice(), &[state]].concat())).collect()
    })
}

/// The rows of the table of gates: which open in a phase, and whether the phase is over.
fn phase(at: &str, tasks: &[(Stage, Progress)]) -> (&'static str, Option<&'static str>) {
    use Stage::{Main, PoststartEphemeral, Poststop, PrestartEphemeral, PrestartSidecar};
    let all = |of: Stage, holds: fn(Progress) -> bool| {
        tasks.iter().filter(|(stage, _)| *stage == of).all(|(_, task)| holds(*task))
    };
    let is_dead = |task: &Progress| task.state == RunState::Dead;
    if at != "poststop" && tasks.iter().all(|(stage, task)| *stage == Poststop || is_dead(task)) {
        return ("", Some("poststop"));
    }
    match at {
        "init" => ("", tasks.iter().all(|(_, task)| task.state == RunState::Pending).then_some("prestart")),
        "prestart" => {
            let is_over = all(PrestartEphemeral, |task| task.state == RunState::Dead && !task.failed)
                && all(PrestartSidecar, |task| task.state == RunState::Running);
            ("Pe Ps", is_over.then_some("main"))
        }
        "main" => ("Ps M", all(Main, |task| task.state != RunState::Pending).then_some("poststart")),
        "poststart" => ("Ps M Oe Os", all(PoststartEphemeral, |task| task.state == RunState::Dead).then_some("wait")),
        "wait" => ("Ps M Os", None),
        _ => ("X", None),
    }
}

fn open(gates: Gates) -> String {
    let names = ["Pe", "Ps", "M", "Oe", "Os", "X"];
    let is_open = Stage::ALL.into_iter().zip(names).filter(|(stage, _)| gates.is_open(*stage));
    is_open.map(|(_, name)| name).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_gates_of_every_state_are_those_of_the_phase_that_it_leads_to() {
    let stages =
        [Stage::PrestartEphemeral, Stage::PrestartSidecar, Stage::Main, Stage::PoststartEphemeral, Stage::Poststop];
    let names = ["a", "b", "c", "d", "e"];
    // Groups with all of these stages, and with all but one.
    for without in [None, Some(0), Some(1), Some(3), Some(4)] {
        let group: Vec<(&str, Stage)> = names
            .into_iter()
            .zip(stages)
            .enumerate()
            .filter(|(n, _)| Some(*n) != without)
            .map(|(_, one)| one)
            .collect();
        let places: Vec<(&str, TaskPlace)> =
            group.iter().map(|(name, stage)| (*name, TaskPlace { stage: *stage, leader: false })).collect();
        for states in every(group.len()) {
            for is_restored in [false, true] {
                let mut at = if is_restored { "prestart" } else { "init" };
                let tasks: Vec<(Stage, Progress)> =
                    group.iter().zip(&states).map(|((_, stage), task)| (*stage, *task)).collect();
                while let (_, Some(next)) = phase(at, &tasks) {
                    at = next;
                }
                let progress: BTreeMap<String, Progress> =
                    group.iter().zip(&states).map(|((name, _), task)| ((*name).to_owned(), *task)).collect();
                let made = places.iter().copied();
                let mut coordinator = if is_restored { Coordinator::restored(made) } else { Coordinator::new(made) };
                let got = coordinator.observe(&progress);
                assert_eq!(open(got), phase(at, &tasks).0, "{at}: {tasks:?}");
                let wanted = if at == "poststop" { "X" } else { "" };
                assert_eq!(open(got.while_killing()), wanted, "{at}, while it is ended: {tasks:?}");
            }
        }
    }
}

#[test]
fn a_status_is_failed_before_running_before_pending_before_complete() {
    for tasks in (0..=3).flat_map(every) {
        let any = |state: RunState| tasks.iter().any(|task| task.state == state);
        let wanted = if tasks.iter().any(|task| task.failed) {
            Some(DerivedStatus::Failed)
        } else if any(RunState::Running) {
            Some(DerivedStatus::Running)
        } else if any(RunState::Pending) {
            Some(DerivedStatus::Pending)
        } else {
            (!tasks.is_empty()).then_some(DerivedStatus::Complete)
        };
        let got = derive_status(&StatusInput { tasks: &tasks, ..StatusInput::default() });
        assert_eq!(got.map(|(status, _)| status), wanted, "{tasks:?}");
    }
}

#[test]
fn a_leader_of_any_stage_is_killed_first_and_poststop_never() {
    for stage in Stage::ALL {
        let place = |stage, leader| TaskPlace { stage, leader };
        let tasks = BTreeMap::from([
            ("lead".to_owned(), place(stage, true)),
            ("log".to_owned(), place(Stage::PoststartSidecar, false)),
            ("web".to_owned(), place(Stage::Main, false)),
        ]);
        let rest = [vec!["web".to_owned()], vec!["log".to_owned()]];
        let first = (stage != Stage::Poststop).then(|| vec!["lead".to_owned()]);
        let wanted: Vec<Vec<String>> = first.into_iter().chain(rest).collect();
        assert_eq!(kill_stages(&tasks), wanted, "{stage:?}");
    }
    assert_eq!(kill_stages(&BTreeMap::new()), Vec::<Vec<String>>::new());
}

#[test]
fn what_was_silent_for_longer_than_its_time_ends_and_the_next_is_looked_at_just_after_its_own() {
    let nanos = Duration::from_nanos;
    for mask in 0..16_u64 {
        let tracked: BTreeMap<String, Duration> =
            (0..4).filter(|n| mask & (1 << n) != 0).map(|n| (format!("a{n}"), nanos(10 * n))).collect();
        for silent in 0..45 {
            let found = cut_off(&tracked, nanos(silent), Duration::ZERO);
            let over = tracked.iter().filter(|(_, after)| nanos(silent) > **after);
            assert_eq!(found.stop, over.map(|(uid, _)| uid.as_str()).collect::<Vec<_>>(), "{tracked:?} at {silent}");
            // The first moment at which another one would end.
            let next =
                (silent + 1..60).find(|later| cut_off(&tracked, nanos(*later), Duration::ZERO).stop != found.stop);
            assert_eq!(found.wake_after, next.map(|later| nanos(later - silent)), "{tracked:?} at {silent}");
            let waits = CutOff { stop: Vec::new(), wake_after: (mask > 0).then_some(nanos(1)) };
            assert_eq!(cut_off(&tracked, nanos(silent), nanos(1)), waits, "{tracked:?} in its time of grace");
        }
    }
}
