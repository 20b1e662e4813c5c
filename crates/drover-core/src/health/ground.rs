//! Whether what an agent says of an allocation's health has a ground in what it says of the allocation's tasks.

use std::collections::BTreeMap;

use drover_api::allocation::{ClientStatus, TaskRunState, TaskState};

/// Whether an allocation of which its agent says this may count as healthy: a task of it runs, or, where it is over,
/// one did. An agent's token, stolen, would otherwise pass a roll-out by one word.
pub fn has_ground(client: ClientStatus, tasks: &BTreeMap<String, TaskState>) -> bool {
    let is_over = client.is_terminal();
    tasks.values().any(|task| match task.state {
        TaskRunState::Running => true,
        TaskRunState::Dead => is_over && task.started_at.is_some(),
        TaskRunState::Pending => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(state: TaskRunState, has_started: bool) -> BTreeMap<String, TaskState> {
        let started_at = has_started.then_some(jiff::Timestamp::UNIX_EPOCH);
        BTreeMap::from([("t".to_owned(), TaskState { state, started_at, ..TaskState::default() })])
    }

    #[test]
    fn must_survive_x_026_health_that_its_own_task_states_contradict() {
        use ClientStatus::{Complete, Pending, Running, Unknown};
        for client in [Pending, Running, Unknown, Complete] {
            assert!(has_ground(client, &task(TaskRunState::Running, true)));
            assert!(!has_ground(client, &BTreeMap::new()), "{client}");
            assert!(!has_ground(client, &task(TaskRunState::Pending, false)), "{client}");
            assert!(!has_ground(client, &task(TaskRunState::Dead, false)), "{client}");
            assert_eq!(has_ground(client, &task(TaskRunState::Dead, true)), client == Complete, "{client}");
        }
    }
}
