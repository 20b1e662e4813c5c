//! Which job is looked at next: at most one evaluation of a job at a time, higher priority first, delayed ones when due.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};

use drover_api::allocation::FollowUp;
use drover_api::job::EvalTrigger;
use drover_core::ids::JobKey;
use jiff::Timestamp;

/// The queue of evaluations.
#[derive(Debug, Default)]
pub(super) struct Broker {
    waiting: HashMap<JobKey, Waiting>,
    order: BTreeSet<(Reverse<i64>, u64, JobKey)>,
    under_way: HashSet<JobKey>,
    delayed: BTreeSet<(Timestamp, JobKey, EvalTrigger)>,
    counter: u64,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    trigger: EvalTrigger,
    wait_until: Option<Timestamp>,
    priority: i64,
    number: u64,
}

/// An evaluation to make now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Next {
    /// The job.
    pub(super) job: JobKey,
    /// What caused it.
    pub(super) trigger: EvalTrigger,
    /// The time for which it was delayed, if it was.
    pub(super) wait_until: Option<Timestamp>,
    /// A number that no other evaluation of this term has.
    pub(super) number: u64,
}

impl Broker {
    /// Queues an evaluation. One that waits already stays, with the newer trigger.
    pub(super) fn enqueue(&mut self, job: &JobKey, trigger: EvalTrigger, priority: i64) {
        self.add(job, trigger, None, priority);
    }

    fn add(&mut self, job: &JobKey, trigger: EvalTrigger, wait_until: Option<Timestamp>, priority: i64) {
        if let Some(waiting) = self.waiting.get_mut(job) {
            // An allocation may wait for just this one; any other is as good as the newest.
            if waiting.wait_until.is_none() || wait_until.is_some() {
                waiting.trigger = trigger;
                waiting.wait_until = wait_until;
            }
            return;
        }
        self.counter += 1;
        let waiting = Waiting { trigger, wait_until, priority, number: self.counter };
        self.waiting.insert(job.clone(), waiting);
        if !self.under_way.contains(job) {
            self.order.insert((Reverse(priority), waiting.number, job.clone()));
        }
    }

    /// Queues an evaluation for a later time.
    pub(super) fn delay(&mut self, job: &JobKey, follow_up: &FollowUp) {
        self.delayed.insert((follow_up.at, job.clone(), follow_up.trigger));
    }

    /// Calls a delayed evaluation off that nobody waits for any more.
    pub(super) fn call_off(&mut self, job: &JobKey, follow_up: &FollowUp) {
        self.delayed.remove(&(follow_up.at, job.clone(), follow_up.trigger));
    }

    /// Moves what is due into the queue.
    pub(super) fn release_due(&mut self, now: Timestamp, priority: impl Fn(&JobKey) -> i64) {
        while let Some((at, job, trigger)) = self.delayed.first().cloned() {
            if at > now {
                break;
            }
            self.delayed.remove(&(at, job.clone(), trigger));
            self.add(&job, trigger, Some(at), priority(&job));
        }
    }

    /// When the next delayed evaluation is due.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.delayed.first().map(|(at, _, _)| *at)
    }

    /// The next evaluation; its job is under way until [`Broker::finish`].
    pub(super) fn pop(&mut self) -> Option<Next> {
        let (_, _, job) = self.order.pop_first()?;
        let waiting = self.waiting.remove(&job)?;
        self.under_way.insert(job.clone());
        Some(Next { job, trigger: waiting.trigger, wait_until: waiting.wait_until, number: waiting.number })
    }

    /// The evaluation of a job is done; one that came meanwhile is next.
    pub(super) fn finish(&mut self, job: &JobKey) {
        if self.under_way.remove(job)
            && let Some(waiting) = self.waiting.get(job)
        {
            self.order.insert((Reverse(waiting.priority), waiting.number, job.clone()));
        }
    }

    /// Whether an evaluation of a job is under way.
    pub(super) fn is_under_way(&self, job: &JobKey) -> bool {
        self.under_way.contains(job)
    }

    /// Whether an evaluation of a job waits: it will see all that is known now.
    pub(super) fn is_waiting(&self, job: &JobKey) -> bool {
        self.waiting.contains_key(job)
    }

    /// Whether an evaluation of a job waits or is under way.
    pub(super) fn is_busy(&self, job: &JobKey) -> bool {
        self.waiting.contains_key(job) || self.under_way.contains(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str) -> JobKey {
        JobKey::new("ns", name)
    }

    #[test]
    fn one_evaluation_of_a_job_at_a_time() {
        let mut broker = Broker::default();
        broker.enqueue(&job("a"), EvalTrigger::JobRegister, 50);
        broker.enqueue(&job("a"), EvalTrigger::NodeUpdate, 50);
        let first = broker.pop().unwrap();
        assert_eq!(first.trigger, EvalTrigger::NodeUpdate);
        broker.enqueue(&job("a"), EvalTrigger::AllocFailure, 50);
        assert_eq!(broker.pop(), None);
        broker.finish(&job("a"));
        assert_eq!(broker.pop().unwrap().trigger, EvalTrigger::AllocFailure);
        broker.finish(&job("a"));
        assert!(!broker.is_busy(&job("a")));
    }

    #[test]
    fn higher_priority_first_then_first_come() {
        let mut broker = Broker::default();
        for (name, priority) in [("low", 10), ("first", 50), ("second", 50), ("high", 90)] {
            broker.enqueue(&job(name), EvalTrigger::JobRegister, priority);
        }
        let order: Vec<String> = std::iter::from_fn(|| broker.pop()).map(|next| next.job.name.to_string()).collect();
        assert_eq!(order, ["high", "first", "second", "low"]);
    }

    #[test]
    fn s_175_a_follow_up_that_nobody_waits_for_is_called_off() {
        let mut broker = Broker::default();
        let follow_up =
            FollowUp { trigger: EvalTrigger::MaxDisconnectTimeout, at: Timestamp::from_second(100).unwrap() };
        broker.delay(&job("a"), &follow_up);
        broker.call_off(&job("a"), &follow_up);
        assert_eq!(broker.next_due(), None);
    }

    #[test]
    fn a_delayed_evaluation_comes_when_it_is_due() {
        let mut broker = Broker::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        broker.delay(&job("a"), &FollowUp { trigger: EvalTrigger::AllocReschedule, at: at(100) });
        broker.release_due(at(99), |_| 50);
        assert_eq!(broker.pop(), None);
        assert_eq!(broker.next_due(), Some(at(100)));
        broker.release_due(at(100), |_| 50);
        assert_eq!(broker.pop().unwrap().trigger, EvalTrigger::AllocReschedule);
    }
}
