//! What the death of one task means for the others of its group.

use std::collections::BTreeMap;

use super::{Progress, RunState, Stage, TaskPlace};

/// Why the live tasks of a group are killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KillCause {
    /// The leader ended well: its group ends with it.
    LeaderDead {
        /// The leader.
        task: String,
    },
    /// A task failed for good: the others of its group end too.
    SiblingFailed {
        /// The failed task.
        task: String,
    },
    /// Only sidecars live.
    MainTasksDead,
}

/// The consequence of the tasks' states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Nothing to do.
    Continue,
    /// Kill these live tasks, each with an event that names the cause.
    Kill {
        /// Why.
        cause: KillCause,
        /// The live tasks, by name.
        live: Vec<String>,
    },
    /// All tasks but the poststop ones are dead: release those that wait for a restart.
    AllDead,
}

/// Judges a group after a task changed. Poststop tasks are ignored. O(tasks).
pub fn react(tasks: &BTreeMap<String, (TaskPlace, Progress)>) -> Reaction {
    let others = || tasks.iter().filter(|(_, (place, _))| place.stage != Stage::Poststop);
    let live: Vec<String> =
        others().filter(|(_, (_, progress))| progress.state != RunState::Dead).map(|(name, _)| name.clone()).collect();
    if live.is_empty() {
        return Reaction::AllDead;
    }
    let leader = others().find(|(_, (place, progress))| place.leader && progress.is_done_well());
    let failed = others().find(|(_, (_, progress))| progress.is_failed());
    let cause = match (leader, failed) {
        (Some((task, _)), _) => Some(KillCause::LeaderDead { task: task.clone() }),
        (None, Some((task, _))) => Some(KillCause::SiblingFailed { task: task.clone() }),
        (None, None) => only_sidecars(tasks, &live).then_some(KillCause::MainTasksDead),
    };
    match cause {
        Some(cause) => Reaction::Kill { cause, live },
        None => Reaction::Continue,
    }
}

fn only_sidecars(tasks: &BTreeMap<String, (TaskPlace, Progress)>, live: &[String]) -> bool {
    live.iter().all(|name| tasks.get(name).is_some_and(|(place, _)| place.stage.is_sidecar()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use RunState::{Dead, Pending, Running};

    fn check(tasks: &[(&str, Stage, bool, RunState, bool)]) -> Reaction {
        let tasks = tasks
            .iter()
            .map(|(name, stage, leader, state, failed)| {
                (
                    (*name).to_owned(),
                    (TaskPlace { stage: *stage, leader: *leader }, Progress { state: *state, failed: *failed }),
                )
            })
            .collect();
        react(&tasks)
    }

    fn kill(cause: KillCause, live: &[&str]) -> Reaction {
        Reaction::Kill { cause, live: live.iter().map(|name| (*name).to_owned()).collect() }
    }

    #[test]
    fn a_047_a_failed_task_takes_its_siblings_along() {
        let reaction = check(&[("a", Stage::Main, false, Dead, true), ("b", Stage::Main, false, Running, false)]);
        assert_eq!(reaction, kill(KillCause::SiblingFailed { task: "a".into() }, &["b"]));
    }

    #[test]
    fn a_048_the_leaders_end_ends_the_followers() {
        let reaction = check(&[("lead", Stage::Main, true, Dead, false), ("b", Stage::Main, false, Running, false)]);
        assert_eq!(reaction, kill(KillCause::LeaderDead { task: "lead".into() }, &["b"]));
    }

    #[test]
    fn a_049_sidecars_end_with_the_main_tasks() {
        let reaction =
            check(&[("m", Stage::Main, false, Dead, false), ("s", Stage::PrestartSidecar, false, Running, false)]);
        assert_eq!(reaction, kill(KillCause::MainTasksDead, &["s"]));
    }

    #[test]
    fn a_175_a_dead_leader_wins_over_a_failed_follower() {
        let reaction = check(&[
            ("lead", Stage::Main, true, Dead, false),
            ("b", Stage::Main, false, Dead, true),
            ("c", Stage::Main, false, Running, false),
        ]);
        assert_eq!(reaction, kill(KillCause::LeaderDead { task: "lead".into() }, &["c"]));
    }

    #[test]
    fn a_leader_that_failed_counts_as_a_failed_sibling() {
        let reaction = check(&[("lead", Stage::Main, true, Dead, true), ("b", Stage::Main, false, Pending, false)]);
        assert_eq!(reaction, kill(KillCause::SiblingFailed { task: "lead".into() }, &["b"]));
    }

    #[test]
    fn poststop_tasks_keep_nothing_alive() {
        let reaction = check(&[("m", Stage::Main, false, Dead, false), ("x", Stage::Poststop, false, Pending, false)]);
        assert_eq!(reaction, Reaction::AllDead);
    }

    #[test]
    fn a_live_main_task_keeps_the_sidecars() {
        let reaction =
            check(&[("m", Stage::Main, false, Pending, false), ("s", Stage::PrestartSidecar, false, Running, false)]);
        assert_eq!(reaction, Reaction::Continue);
    }
}
