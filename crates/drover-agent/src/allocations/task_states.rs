//! The tasks of one allocation: where each stands in its group, how it fares, and what the allocation itself reports of
//! it. Must never know how a task is run.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::allocation::{TaskEvent, TaskRunState, TaskState};
use drover_api::group::Group;
use drover_api::task::Task;
use drover_core::lifecycle::{DerivedStatus, Progress, Reaction, Stage, StatusInput, TaskPlace, derive_status, react};
use jiff::Timestamp;

use crate::drivers::HealthReport;
use crate::tasks::plan::TaskUpdate;
use crate::tasks::record::TaskRecord;
use crate::tasks::task_event;

/// One task.
#[derive(Debug)]
struct Member {
    task: Arc<Task>,
    place: TaskPlace,
    state: TaskState,
    /// What its driver reports of its health.
    health: HealthReport,
    /// Reported of it by the allocation, beside what the task's own runner reports.
    events: Vec<TaskEvent>,
}

/// The tasks by their names.
#[derive(Debug)]
pub(super) struct TaskStates(BTreeMap<String, Member>);

impl TaskStates {
    /// The tasks of a group, as an earlier life of the agent has left them.
    pub(super) fn new(group: &Group, restored: &BTreeMap<String, TaskRecord>) -> Self {
        let member = |task: &Task| {
            let state = restored.get(&task.name).map(|record| record.state.clone()).unwrap_or_default();
            let place = TaskPlace::of(task);
            let (health, events) = (HealthReport::AtOnce, Vec::new());
            (task.name.clone(), Member { task: Arc::new(task.clone()), place, state, health, events })
        };
        Self(group.tasks.iter().map(member).collect())
    }

    /// The tasks.
    pub(super) fn tasks(&self) -> impl Iterator<Item = (&String, &Arc<Task>)> {
        self.0.iter().map(|(name, member)| (name, &member.task))
    }

    /// Their places in the group.
    pub(super) fn places(&self) -> BTreeMap<String, TaskPlace> {
        self.0.iter().map(|(name, member)| (name.clone(), member.place)).collect()
    }

    /// Their states, as their runners report them.
    pub(super) fn states(&self) -> impl Iterator<Item = (&String, &TaskState)> {
        self.0.iter().map(|(name, member)| (name, &member.state))
    }

    /// The state of one.
    pub(super) fn state(&self, name: &str) -> Option<&TaskState> {
        self.0.get(name).map(|member| &member.state)
    }

    /// The stage of each, with its state.
    pub(super) fn stages(&self) -> impl Iterator<Item = (&String, Stage, &TaskState)> {
        self.0.iter().map(|(name, member)| (name, member.place.stage, &member.state))
    }

    /// What the drivers of those that run report of their health, and since when they run.
    pub(super) fn reported_health(&self) -> impl Iterator<Item = (HealthReport, Timestamp)> {
        let runs = self.0.values().filter(|member| member.state.state == TaskRunState::Running);
        runs.filter_map(|member| Some((member.health, member.state.started_at?)))
    }

    /// How far each has come.
    pub(super) fn progress(&self) -> BTreeMap<String, Progress> {
        self.0.iter().map(|(name, member)| (name.clone(), Progress::of(&member.state))).collect()
    }

    /// Takes in the new state of a task; returns what follows for the others.
    pub(super) fn observe(&mut self, update: TaskUpdate) -> Reaction {
        if let Some(member) = self.0.get_mut(&update.task) {
            (member.health, member.state) = (update.health, update.state);
        }
        let place = |member: &Member| (member.place, Progress::of(&member.state));
        react(&self.0.iter().map(|(name, member)| (name.clone(), place(member))).collect())
    }

    /// Reports something of a task beside what its runner reports.
    pub(super) fn add_event(&mut self, name: &str, event: TaskEvent) {
        if let Some(member) = self.0.get_mut(name) {
            member.events.push(event);
        }
    }

    /// The same of every task.
    pub(super) fn add_event_to_all(&mut self, event: &TaskEvent) {
        for member in self.0.values_mut() {
            member.events.push(event.clone());
        }
    }

    /// Nothing of them was started, nor will be.
    pub(super) fn end_unstarted(&mut self, now: Timestamp) {
        for member in self.0.values_mut() {
            member.state.state = TaskRunState::Dead;
            member.state.finished_at.get_or_insert(now);
        }
    }

    /// Nothing of them was started because of this.
    pub(super) fn fail_unstarted(&mut self, now: Timestamp, because: &TaskEvent) {
        for member in self.0.values_mut() {
            member.state.state = TaskRunState::Dead;
            member.state.failed = true;
            member.state.finished_at = Some(now);
            member.state.events.push(because.clone());
        }
    }

    /// What the allocation's status holds of them.
    pub(super) fn reported(&self) -> BTreeMap<String, TaskState> {
        let with_events = |member: &Member| {
            let mut state = member.state.clone();
            for event in &member.events {
                task_event::insert(&mut state.events, event.clone());
            }
            state
        };
        self.0.iter().map(|(name, member)| (name.clone(), with_events(member))).collect()
    }

    /// The status that follows from theirs.
    pub(super) fn status(&self, max_run_exceeded: bool) -> (DerivedStatus, &'static str) {
        let progress: Vec<Progress> = self.0.values().map(|member| Progress::of(&member.state)).collect();
        let input = StatusInput { max_run_exceeded, forced: None, tasks: &progress };
        derive_status(&input).unwrap_or((DerivedStatus::Pending, "no task started"))
    }

    /// Whether one has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.0.values().any(|member| member.state.failed)
    }

    /// Whether every task is dead.
    pub(super) fn is_over(&self) -> bool {
        self.0.values().all(|member| member.state.state == TaskRunState::Dead)
    }

    /// Whether this one is dead; one that there is not counts as dead.
    pub(super) fn is_dead(&self, name: &str) -> bool {
        self.0.get(name).is_none_or(|member| member.state.state == TaskRunState::Dead)
    }

    /// Those that run.
    pub(super) fn running(&self) -> Vec<String> {
        let runs = self.states().filter(|(_, state)| state.state == TaskRunState::Running);
        runs.map(|(name, _)| name.clone()).collect()
    }

    /// The last end of a task.
    pub(super) fn last_end(&self) -> Option<Timestamp> {
        self.0.values().filter_map(|member| member.state.finished_at).max()
    }
}

#[cfg(test)]
mod tests {
    use drover_api::allocation::TaskEventType;
    use serde_json::json;

    use super::*;

    fn tasks(tasks: &serde_json::Value) -> TaskStates {
        let group: Group = serde_json::from_value(json!({ "name": "g", "tasks": tasks })).expect("a group");
        TaskStates::new(&group, &BTreeMap::new())
    }

    fn two() -> TaskStates {
        tasks(&json!([{ "name": "web", "driver": "mock" }, { "name": "log", "driver": "mock" }]))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn update(task: &str, state: TaskRunState, failed: bool) -> TaskUpdate {
        let times = (state != TaskRunState::Pending).then(|| at(1));
        let finished_at = (state == TaskRunState::Dead).then(|| at(5));
        let state = TaskState { state, failed, started_at: times, finished_at, ..TaskState::default() };
        TaskUpdate { task: task.to_owned(), state, health: HealthReport::AtOnce }
    }

    #[test]
    fn the_status_follows_the_tasks() {
        for (web, log, status, is_over) in [
            (TaskRunState::Pending, TaskRunState::Pending, DerivedStatus::Pending, false),
            (TaskRunState::Running, TaskRunState::Pending, DerivedStatus::Running, false),
            (TaskRunState::Running, TaskRunState::Dead, DerivedStatus::Running, false),
            (TaskRunState::Dead, TaskRunState::Dead, DerivedStatus::Complete, true),
        ] {
            let mut tasks = two();
            tasks.observe(update("web", web, false));
            tasks.observe(update("log", log, false));
            assert_eq!((tasks.status(false).0, tasks.is_over()), (status, is_over), "{web:?} {log:?}");
        }
        let mut tasks = two();
        tasks.observe(update("web", TaskRunState::Dead, true));
        tasks.observe(update("log", TaskRunState::Dead, false));
        assert_eq!((tasks.status(false).0, tasks.has_failed()), (DerivedStatus::Failed, true));
    }

    #[test]
    fn what_runs_is_listed_and_what_there_is_not_is_dead() {
        let mut tasks = two();
        assert_eq!(tasks.running(), [""; 0]);
        tasks.observe(update("web", TaskRunState::Running, false));
        assert_eq!(tasks.running(), ["web"]);
        assert_eq!((tasks.is_dead("web"), tasks.is_dead("log"), tasks.is_dead("other")), (false, false, true));
        assert_eq!(tasks.state("web").map(|state| state.state), Some(TaskRunState::Running));
        assert!(tasks.state("other").is_none());
        tasks.observe(update("other", TaskRunState::Running, false));
        assert_eq!(tasks.running(), ["web"], "an update of a task that there is not changes nothing");
    }

    #[test]
    fn a_failed_task_ends_its_siblings_and_the_last_one_releases_all() {
        let mut tasks = two();
        tasks.observe(update("log", TaskRunState::Running, false));
        let reaction = tasks.observe(update("web", TaskRunState::Dead, true));
        assert!(matches!(&reaction, Reaction::Kill { live, .. } if live == &["log"]), "{reaction:?}");
        assert_eq!(tasks.observe(update("log", TaskRunState::Dead, false)), Reaction::AllDead);
        assert_eq!(tasks.last_end(), Some(at(5)));
    }

    #[test]
    fn events_of_the_allocation_stand_among_those_of_the_task_by_their_times() {
        let mut tasks = two();
        let event = |second, text: &str| task_event::plain(TaskEventType::Started, at(second), text);
        let mut of_task = update("web", TaskRunState::Running, false);
        of_task.state.events = vec![event(1, "first"), event(3, "third")];
        tasks.observe(of_task);
        tasks.add_event("web", event(2, "second"));
        tasks.add_event_to_all(&event(4, "fourth"));
        tasks.add_event("other", event(2, "of no task"));
        let reported = tasks.reported();
        let texts = |name: &str| reported[name].events.iter().map(|event| &*event.message).collect::<Vec<_>>();
        assert_eq!((texts("web"), texts("log")), (vec!["first", "second", "third", "fourth"], vec!["fourth"]));
        let own = tasks.state("web").map(|state| state.events.len());
        assert_eq!(own, Some(2), "the task's own record holds its own events only");
    }

    #[test]
    fn what_never_started_is_dead_and_fails_only_with_a_reason() {
        let mut ended = two();
        ended.end_unstarted(at(7));
        assert_eq!((ended.status(false).0, ended.last_end()), (DerivedStatus::Complete, Some(at(7))));
        ended.end_unstarted(at(9));
        assert_eq!(ended.last_end(), Some(at(7)), "the first end counts");
        let mut failed = two();
        failed.fail_unstarted(at(7), &task_event::plain(TaskEventType::SetupFailure, at(7), "no volume"));
        assert_eq!(failed.status(false).0, DerivedStatus::Failed);
        assert!(failed.reported().values().all(|state| state.events[0].message == "no volume"));
    }

    #[test]
    fn only_of_tasks_that_run_the_drivers_word_counts() {
        let mut tasks = two();
        let reported = HealthReport::After(std::time::Duration::from_secs(3));
        tasks.observe(TaskUpdate { health: reported, ..update("web", TaskRunState::Running, false) });
        tasks.observe(TaskUpdate { health: HealthReport::Never, ..update("log", TaskRunState::Dead, false) });
        assert_eq!(tasks.reported_health().collect::<Vec<_>>(), [(reported, at(1))]);
    }

    #[test]
    fn a_restored_task_begins_with_its_record() {
        let group: Group =
            serde_json::from_value(json!({ "name": "g", "tasks": [{ "name": "web", "driver": "mock" }] }))
                .expect("a group");
        let state = TaskState { restarts: 3, ..TaskState::default() };
        let restored = [("web".to_owned(), TaskRecord { state, ..TaskRecord::default() })].into();
        let tasks = TaskStates::new(&group, &restored);
        assert_eq!(tasks.state("web").map(|state| state.restarts), Some(3));
    }
}
