//! A kill under way: which tasks end now, and which after them. Must never know how a task ends.

use std::collections::VecDeque;

use tokio::time::Instant;

use crate::tasks::orders::KillOrder;

/// Ends the tasks of an allocation stage after stage, the first after the shutdown delay of the group.
#[derive(Debug)]
pub(super) struct Kill {
    starts_at: Option<Instant>,
    stages: VecDeque<Vec<String>>,
    current: Vec<String>,
    order: KillOrder,
}

impl Kill {
    /// Ends these stages in their order, from then on or at once.
    pub(super) fn new(stages: Vec<Vec<String>>, starts_at: Option<Instant>, order: KillOrder) -> Self {
        Self { starts_at, stages: stages.into(), current: Vec::new(), order }
    }

    /// When the delay of the group is over; none once it is.
    pub(super) fn starts_at(&self) -> Option<Instant> {
        self.starts_at
    }

    /// The delay of the group is over, or left out from now on; false when it was over already.
    pub(super) fn end_delay(&mut self) -> bool {
        self.starts_at.take().is_some()
    }

    /// Whether the next stage has its turn.
    pub(super) fn is_stage_over(&self, is_dead: impl Fn(&str) -> bool) -> bool {
        self.starts_at.is_none() && self.current.iter().all(|name| is_dead(name))
    }

    /// Goes on with the next stage that has a task alive: the order, and to whom it goes.
    pub(super) fn next_stage(&mut self, is_alive: impl Fn(&str) -> bool) -> Option<(Vec<String>, KillOrder)> {
        self.current.clear();
        while let Some(mut stage) = self.stages.pop_front() {
            stage.retain(|name| is_alive(name));
            if !stage.is_empty() {
                self.current.clone_from(&stage);
                return Some((stage, self.order.clone()));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn order() -> KillOrder {
        KillOrder { events: Vec::new(), skip_delay: false, fails: false, is_cleanup: false }
    }

    fn stages(names: &[&[&str]]) -> Vec<Vec<String>> {
        names.iter().map(|stage| stage.iter().map(|name| (*name).to_owned()).collect()).collect()
    }

    #[test]
    fn stages_end_one_after_the_other_and_those_without_a_live_task_are_left_out() {
        let mut kill = Kill::new(stages(&[&["leader"], &["gone"], &["web", "done"], &["sidecar"]]), None, order());
        let is_alive = |name: &str| !["gone", "done"].contains(&name);
        let mut turns = Vec::new();
        while let Some((names, _)) = kill.next_stage(is_alive) {
            turns.push(names.join(" "));
        }
        assert_eq!(turns, ["leader", "web", "sidecar"]);
        assert!(kill.is_stage_over(|_| false), "after the last stage none is awaited");
    }

    #[test]
    fn a_stage_is_over_when_all_its_tasks_are_dead() {
        let mut kill = Kill::new(stages(&[&["a", "b"], &["c"]]), None, order());
        let first = kill.next_stage(|_| true).expect("a stage").0;
        assert_eq!(first, ["a", "b"]);
        assert!(!kill.is_stage_over(|name| name == "a"));
        assert!(kill.is_stage_over(|name| name == "a" || name == "b"));
    }

    #[test]
    fn nothing_is_over_during_the_delay_which_ends_once() {
        let at = Instant::now() + Duration::from_secs(5);
        let mut kill = Kill::new(stages(&[&["a"]]), Some(at), order());
        assert_eq!((kill.starts_at(), kill.is_stage_over(|_| true)), (Some(at), false));
        assert!(kill.end_delay() && !kill.end_delay());
        assert_eq!((kill.starts_at(), kill.is_stage_over(|_| true)), (None, true));
    }
}
