//! The order in which the tasks of an allocation are killed: the leader, then the rest, then the sidecars.

use std::collections::BTreeMap;

use super::{Stage, TaskPlace};

/// Returns the stages of a kill: those of one stage are killed together and awaited before the next. Poststop tasks are
/// in none, they start once all others are dead. Empty stages are left out.
pub fn kill_stages(tasks: &BTreeMap<String, TaskPlace>) -> Vec<Vec<String>> {
    let mut stages = [Vec::new(), Vec::new(), Vec::new()];
    for (name, place) in tasks {
        let stage = match place.stage {
            Stage::Poststop => continue,
            Stage::PrestartEphemeral
            | Stage::PrestartSidecar
            | Stage::Main
            | Stage::PoststartEphemeral
            | Stage::PoststartSidecar
                if place.leader =>
            {
                0
            }
            Stage::PrestartSidecar | Stage::PoststartSidecar => 2,
            Stage::PrestartEphemeral | Stage::Main | Stage::PoststartEphemeral => 1,
        };
        stages[stage].push(name.clone());
    }
    stages.into_iter().filter(|stage| !stage.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(tasks: &[(&str, Stage, bool)]) -> BTreeMap<String, TaskPlace> {
        tasks
            .iter()
            .map(|(name, stage, leader)| ((*name).to_owned(), TaskPlace { stage: *stage, leader: *leader }))
            .collect()
    }

    #[test]
    fn a_050_leader_then_main_then_sidecars_and_never_poststop() {
        let tasks = places(&[
            ("clean", Stage::Poststop, false),
            ("init", Stage::PrestartEphemeral, false),
            ("lead", Stage::Main, true),
            ("log", Stage::PrestartSidecar, false),
            ("proxy", Stage::PoststartSidecar, false),
            ("web", Stage::Main, false),
        ]);
        assert_eq!(kill_stages(&tasks), [vec!["lead"], vec!["init", "web"], vec!["log", "proxy"]]);
    }

    #[test]
    fn without_a_leader_there_is_no_empty_stage() {
        assert_eq!(kill_stages(&places(&[("web", Stage::Main, false)])), [vec!["web"]]);
    }
}
