//! Which job is looked at next: at most one evaluation of a job at a time, higher priority first, delayed ones when
//! due.
//!
//! An evaluation costs what its job has of allocations, and each change of one of them asks for one. A job whose
//! evaluation was long rests before the next, which then sees all that has come meanwhile: else a large job that
//! changes all the time would leave the leader no time for anything else.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use drover_api::allocation::FollowUp;
use drover_api::job::EvalTrigger;
use jiff::Timestamp;

use crate::ids::JobKey;

/// The queue of evaluations.
#[derive(Debug, Default)]
pub struct Broker {
    waiting: HashMap<JobKey, WaitingEvaluation>,
    order: BTreeSet<(Reverse<i64>, u64, JobKey)>,
    under_way: HashSet<JobKey>,
    delayed: BTreeSet<(Timestamp, JobKey, EvalTrigger)>,
    /// Jobs whose last evaluation was long, and until when they rest.
    resting: BTreeMap<JobKey, Duration>,
    /// How often the evaluation of a job was given back since it last was carried out.
    given_back: HashMap<JobKey, u32>,
    counter: u64,
}

/// How often an evaluation is given back before it counts as failed.
const DELIVERIES: u32 = 3;
/// Pause after the first time that it is given back, and the step by which later ones grow.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(20));
/// When a failed evaluation is made again: at the earliest, and the span over which these are spread.
const FOLLOW_UP: (Duration, Duration) = (Duration::from_mins(1), Duration::from_mins(5));

/// An evaluation that took less is followed by the next one at once.
const LONG: Duration = Duration::from_millis(2);
/// How much longer than its evaluation took a job rests: evaluations of one job leave four fifths of the time to
/// others.
const REST: u32 = 4;
/// The longest rest.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// What becomes of an evaluation that was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenBack {
    /// It is made again after this long.
    Again(Duration),
    /// It has failed; another one follows after this long.
    Failed(Duration),
}

#[derive(Clone, Copy, Debug)]
struct WaitingEvaluation {
    trigger: EvalTrigger,
    wait_until: Option<Timestamp>,
    priority: i64,
    number: u64,
}

/// An evaluation to make now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextEvaluation {
    /// The job.
    pub job: JobKey,
    /// What caused it.
    pub trigger: EvalTrigger,
    /// The time for which it was delayed, if it was.
    pub wait_until: Option<Timestamp>,
    /// A number that no other evaluation of this term has.
    pub number: u64,
}

impl Broker {
    /// Queues an evaluation. One that waits already stays, with the newer trigger.
    pub fn enqueue(&mut self, job: &JobKey, trigger: EvalTrigger, priority: i64) {
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
        let waiting = WaitingEvaluation { trigger, wait_until, priority, number: self.counter };
        self.waiting.insert(job.clone(), waiting);
        if !self.under_way.contains(job) {
            self.order.insert((Reverse(priority), waiting.number, job.clone()));
        }
    }

    /// Queues an evaluation for a later time.
    pub fn delay(&mut self, job: &JobKey, follow_up: &FollowUp) {
        self.delayed.insert((follow_up.at, job.clone(), follow_up.trigger));
    }

    /// Calls a delayed evaluation off that is no longer needed.
    pub fn call_off(&mut self, job: &JobKey, follow_up: &FollowUp) {
        self.delayed.remove(&(follow_up.at, job.clone(), follow_up.trigger));
    }

    /// Moves what is due into the queue.
    pub fn release_due(&mut self, now: Timestamp, priority: impl Fn(&JobKey) -> i64) {
        while let Some((at, job, trigger)) = self.delayed.first().cloned() {
            if at > now {
                break;
            }
            self.delayed.remove(&(at, job.clone(), trigger));
            self.add(&job, trigger, Some(at), priority(&job));
        }
    }

    /// When the next delayed evaluation is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.delayed.first().map(|(at, _, _)| *at)
    }

    /// The next evaluation of a job that does not rest; its job is under way until [`Broker::finish`].
    pub fn pop(&mut self, now: Duration) -> Option<NextEvaluation> {
        let rests = |job: &JobKey| self.resting.get(job).is_some_and(|until| *until > now);
        let place = self.order.iter().find(|(_, _, job)| !rests(job)).cloned()?;
        self.order.remove(&place);
        let (_, _, job) = place;
        self.resting.remove(&job);
        let waiting = self.waiting.remove(&job)?;
        self.under_way.insert(job.clone());
        Some(NextEvaluation { job, trigger: waiting.trigger, wait_until: waiting.wait_until, number: waiting.number })
    }

    /// The evaluation of a job took so long, and has ended now: by one monotonic clock, as [`Broker::pop`] is told the
    /// time.
    pub fn rest(&mut self, job: &JobKey, took: Duration, now: Duration) {
        self.resting.retain(|_, until| *until > now);
        if took >= LONG {
            self.resting.insert(job.clone(), now + (took * REST).min(LONGEST_REST));
        }
    }

    /// When the first job has rested that waits for nothing else.
    pub fn rested_at(&self) -> Option<Duration> {
        let waits = |(job, _): &(&JobKey, &Duration)| self.waiting.contains_key(*job) && !self.under_way.contains(*job);
        self.resting.iter().filter(waits).map(|(_, until)| *until).min()
    }

    /// The evaluation of a job is done; one that came meanwhile is next.
    pub fn finish(&mut self, job: &JobKey) {
        if self.under_way.remove(job)
            && let Some(waiting) = self.waiting.get(job)
        {
            self.order.insert((Reverse(waiting.priority), waiting.number, job.clone()));
        }
    }

    /// The evaluation of a job was carried out: what went wrong before counts no more.
    pub fn acknowledge(&mut self, job: &JobKey) {
        self.given_back.remove(job);
    }

    /// The evaluation of a job could not be carried out, by a fault of its own.
    pub fn give_back(&mut self, job: &JobKey, rng: &mut fastrand::Rng) -> GivenBack {
        let times = self.given_back.entry(job.clone()).or_default();
        *times += 1;
        if *times >= DELIVERIES {
            self.given_back.remove(job);
            return GivenBack::Failed(FOLLOW_UP.0 + FOLLOW_UP.1.mul_f64(rng.f64()));
        }
        let pause = if *times == 1 { PAUSE.0 } else { PAUSE.1 * (*times - 1) };
        GivenBack::Again(pause)
    }

    /// Whether an evaluation of a job is under way.
    pub fn is_under_way(&self, job: &JobKey) -> bool {
        self.under_way.contains(job)
    }

    /// Whether an evaluation of a job waits: it will see all that is known now.
    pub fn is_waiting(&self, job: &JobKey) -> bool {
        self.waiting.contains_key(job)
    }

    /// How many jobs wait for their turn.
    pub fn n_ready(&self) -> usize {
        self.waiting.len()
    }

    /// How many evaluations wait for their time.
    pub fn n_delayed(&self) -> usize {
        self.delayed.len()
    }

    /// Whether an evaluation of a job waits or is under way.
    pub fn is_busy(&self, job: &JobKey) -> bool {
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
    fn s_140_of_all_that_came_meanwhile_only_the_newest_is_made() {
        let mut broker = Broker::default();
        let triggers =
            [EvalTrigger::JobRegister, EvalTrigger::NodeUpdate, EvalTrigger::AllocStop, EvalTrigger::JobScaling];
        broker.enqueue(&job("a"), triggers[0], 50);
        assert_eq!(broker.pop(Duration::ZERO).unwrap().trigger, triggers[0]);
        for trigger in &triggers[1..] {
            broker.enqueue(&job("a"), *trigger, 50);
            assert_eq!(broker.pop(Duration::ZERO), None, "one of the job is under way");
        }
        broker.finish(&job("a"));
        assert_eq!(broker.pop(Duration::ZERO).unwrap().trigger, triggers[3]);
        broker.finish(&job("a"));
        assert_eq!(broker.pop(Duration::ZERO), None, "the second and the third are not made any more");
    }

    #[test]
    fn s_142_one_that_is_given_back_waits_longer_each_time_and_then_has_failed() {
        let (mut broker, mut rng) = (Broker::default(), fastrand::Rng::with_seed(1));
        let mut give_back = || broker.give_back(&job("a"), &mut rng);
        assert_eq!(give_back(), GivenBack::Again(Duration::from_secs(1)));
        assert_eq!(give_back(), GivenBack::Again(Duration::from_secs(20)));
        assert!(matches!(give_back(), GivenBack::Failed(_)));
        assert_eq!(give_back(), GivenBack::Again(Duration::from_secs(1)), "the follow-up has its own tries");
        broker.acknowledge(&job("a"));
        assert_eq!(broker.give_back(&job("a"), &mut rng), GivenBack::Again(Duration::from_secs(1)));
    }

    #[test]
    fn s_143_a_failed_one_is_followed_after_one_to_six_minutes() {
        for seed in 0..100 {
            let (mut broker, mut rng) = (Broker::default(), fastrand::Rng::with_seed(seed));
            let last = (0..3).map(|_| broker.give_back(&job("a"), &mut rng)).last();
            let Some(GivenBack::Failed(after)) = last else { panic!("{last:?}") };
            assert!((60.0..360.0).contains(&after.as_secs_f64()), "{after:?}");
        }
    }

    #[test]
    fn s_144_jobs_of_one_name_in_two_namespaces_are_two_jobs() {
        let mut broker = Broker::default();
        for namespace in ["one", "two"] {
            broker.enqueue(&JobKey::new(namespace, "a"), EvalTrigger::JobRegister, 50);
        }
        assert!(broker.pop(Duration::ZERO).is_some() && broker.pop(Duration::ZERO).is_some());
    }

    #[test]
    fn one_evaluation_of_a_job_at_a_time() {
        let mut broker = Broker::default();
        broker.enqueue(&job("a"), EvalTrigger::JobRegister, 50);
        broker.enqueue(&job("a"), EvalTrigger::NodeUpdate, 50);
        let first = broker.pop(Duration::ZERO).unwrap();
        assert_eq!(first.trigger, EvalTrigger::NodeUpdate);
        broker.enqueue(&job("a"), EvalTrigger::AllocFailure, 50);
        assert_eq!(broker.pop(Duration::ZERO), None);
        broker.finish(&job("a"));
        assert_eq!(broker.pop(Duration::ZERO).unwrap().trigger, EvalTrigger::AllocFailure);
        broker.finish(&job("a"));
        assert!(!broker.is_busy(&job("a")));
    }

    #[test]
    fn a_job_whose_evaluation_was_long_rests_and_leaves_its_turn_to_others() {
        let (mut broker, ms) = (Broker::default(), Duration::from_millis);
        let (ask, turn) = (
            |broker: &mut Broker, name| broker.enqueue(&job(name), EvalTrigger::AllocFailure, 50),
            |broker: &mut Broker, at| broker.pop(at).map(|next| next.job.name.to_string()),
        );
        ask(&mut broker, "a");
        for (began, took, rested) in [(0, 1, 0), (0, 25, 100), (100, 5000, 1100)] {
            assert_eq!(turn(&mut broker, ms(began)).as_deref(), Some("a"));
            broker.rest(&job("a"), ms(took), ms(began));
            ask(&mut broker, "a");
            assert_eq!(broker.rested_at(), None, "its plan is under way");
            broker.finish(&job("a"));
            let waits = (rested > began).then(|| ms(rested));
            assert_eq!(broker.rested_at(), waits, "a fifth of the time is its own, and a rest at most a second");
        }
        ask(&mut broker, "b");
        assert_eq!(turn(&mut broker, ms(1099)).as_deref(), Some("b"));
        assert_eq!(turn(&mut broker, ms(1099)), None);
        assert!(broker.is_busy(&job("a")), "it waits");
        assert_eq!((turn(&mut broker, ms(1100)).as_deref(), broker.rested_at()), (Some("a"), None));
    }

    #[test]
    fn s_141_higher_priority_first_then_first_come() {
        let mut broker = Broker::default();
        for (name, priority) in [("low", 10), ("first", 50), ("second", 50), ("high", 80)] {
            broker.enqueue(&job(name), EvalTrigger::JobRegister, priority);
        }
        let order: Vec<String> =
            std::iter::from_fn(|| broker.pop(Duration::ZERO)).map(|next| next.job.name.to_string()).collect();
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
        assert_eq!(broker.pop(Duration::ZERO), None);
        assert_eq!((broker.next_due(), broker.n_delayed(), broker.n_ready()), (Some(at(100)), 1, 0));
        broker.release_due(at(100), |_| 50);
        assert_eq!((broker.n_delayed(), broker.n_ready()), (0, 1));
        assert_eq!(broker.pop(Duration::ZERO).unwrap().trigger, EvalTrigger::AllocReschedule);
    }

    #[test]
    fn evaluations_are_numbered_as_they_come_and_no_two_alike() {
        let mut broker = Broker::default();
        let mut numbers = Vec::new();
        for name in ["a", "b", "a"] {
            broker.enqueue(&job(name), EvalTrigger::JobRegister, 50);
            numbers.push(broker.pop(Duration::ZERO).unwrap().number);
            broker.finish(&job(name));
        }
        assert_eq!(numbers, [1, 2, 3]);
    }

    #[test]
    fn the_rest_of_one_job_ends_that_of_no_other() {
        let (mut broker, ms) = (Broker::default(), Duration::from_millis);
        for name in ["a", "b", "c"] {
            broker.enqueue(&job(name), EvalTrigger::AllocFailure, 50);
        }
        broker.rest(&job("a"), ms(25), ms(0));
        broker.rest(&job("b"), ms(50), ms(0));
        broker.rest(&job("c"), ms(1), ms(50));
        let turn = |broker: &mut Broker, at| broker.pop(ms(at)).map(|next| next.job.name.to_string());
        assert_eq!(turn(&mut broker, 50).as_deref(), Some("c"), "its evaluation was short");
        assert_eq!((turn(&mut broker, 99), broker.rested_at()), (None, Some(ms(100))));
        broker.rest(&job("c"), ms(1), ms(100));
        assert_eq!(broker.rested_at(), Some(ms(200)), "the rest of the first is over, that of the second goes on");
        assert_eq!(turn(&mut broker, 100).as_deref(), Some("a"));
        assert_eq!((turn(&mut broker, 199), turn(&mut broker, 200).as_deref()), (None, Some("b")));
    }

    #[test]
    fn a_job_waits_then_is_under_way_and_may_be_both() {
        let mut broker = Broker::default();
        let state = |broker: &Broker| (broker.is_waiting(&job("a")), broker.is_under_way(&job("a")));
        assert_eq!(state(&broker), (false, false));
        broker.enqueue(&job("a"), EvalTrigger::JobRegister, 50);
        assert_eq!(state(&broker), (true, false));
        assert!(broker.pop(Duration::ZERO).is_some());
        assert_eq!(state(&broker), (false, true));
        broker.enqueue(&job("a"), EvalTrigger::NodeUpdate, 50);
        assert_eq!(state(&broker), (true, true));
        broker.finish(&job("a"));
        assert_eq!(state(&broker), (true, false));
    }
}
