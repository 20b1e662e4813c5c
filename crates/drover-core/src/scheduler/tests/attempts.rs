//! How often an evaluation is tried and how it ends: each row of `spec/scheduler.md` 2.4, over every combination of
//! what it looks at.

use drover_api::job::{EvalStatus, JobType};
use fastrand::Rng;

use super::*;
use crate::ids::EvalId;
use crate::scheduler::attempts::{Attempts, BlockedEvaluation, Ended, NextAttempt, Submitted, end};

const JOB_TYPES: [(JobType, usize); 4] =
    [(JobType::Service, 5), (JobType::Batch, 2), (JobType::System, 5), (JobType::Sysbatch, 2)];

#[test]
fn an_evaluation_is_tried_until_as_many_plans_in_a_row_came_to_nothing() {
    let mut rng = Rng::with_seed(95);
    let mut longest = 0;
    for (job_type, most) in JOB_TYPES {
        for _ in 0..500 {
            let mut tries = Attempts::of(job_type);
            let mut outcomes: Vec<Submitted> = Vec::new();
            loop {
                outcomes
                    .push([Submitted::Nothing, Submitted::Nothing, Submitted::Part, Submitted::Whole][rng.usize(..4)]);
                let in_vain = outcomes.iter().rev().take_while(|outcome| **outcome == Submitted::Nothing).count();
                let wanted = match outcomes.last() {
                    Some(Submitted::Whole) => NextAttempt::Done,
                    _ if in_vain >= most => NextAttempt::Exhausted,
                    _ => NextAttempt::Again,
                };
                let next = tries.after(outcomes[outcomes.len() - 1]);
                assert_eq!(next, wanted, "{job_type:?} after {outcomes:?}");
                if next != NextAttempt::Again {
                    break;
                }
            }
            longest = longest.max(outcomes.len());
        }
    }
    assert!(longest > 8, "no evaluation was given its tries back: {longest}");
}

/// What an end depends on.
#[expect(clippy::struct_excessive_bools, reason = "each is one condition of the table")]
#[derive(Clone, Copy, Debug)]
struct Situation {
    job_type: JobType,
    is_refused: bool,
    next: NextAttempt,
    is_blocked: bool,
    was_blocked: bool,
    has_follow_up: bool,
    /// Seconds from now for which the evaluation was delayed.
    delayed: Option<i64>,
}

impl Situation {
    fn every() -> Vec<Self> {
        let mut all = Vec::new();
        for (job_type, _) in JOB_TYPES {
            for flags in 0..16 {
                for next in [NextAttempt::Done, NextAttempt::Exhausted] {
                    for delayed in [None, Some(-1), Some(0), Some(1)] {
                        let [is_refused, is_blocked, was_blocked, has_follow_up] =
                            [1, 2, 4, 8].map(|flag| flags & flag != 0);
                        all.push(Self { job_type, is_refused, next, is_blocked, was_blocked, has_follow_up, delayed });
                    }
                }
            }
        }
        all
    }

    fn end(self, world: &World) -> Ended {
        let follow_up = FollowUp { trigger: EvalTrigger::AllocReschedule, at: now() + SignedDuration::from_secs(30) };
        let plan = Plan {
            refused: self.is_refused.then(|| "trigger".to_owned()),
            is_blocked: self.is_blocked,
            follow_ups: if self.has_follow_up { vec![follow_up] } else { Vec::new() },
            ..Plan::default()
        };
        let wait_until = self.delayed.map(|seconds| now() + SignedDuration::from_secs(seconds));
        let eval = Evaluation { wait_until, ..world.evaluation() };
        end(self.job_type, &eval, &plan, self.next, self.was_blocked.then(|| EvalId::from("waits")).as_ref())
    }

    /// Status, id of the one that waits and its trigger, as the specification says them.
    fn wanted(self) -> (EvalStatus, Option<(Option<&'static str>, EvalTrigger)>) {
        let is_generic = matches!(self.job_type, JobType::Service | JobType::Batch);
        if self.is_refused {
            // An unaccepted trigger fails the evaluation.
            (EvalStatus::Failed, None)
        } else if self.next == NextAttempt::Exhausted {
            // Exhausted: failed; generic also creates a blocked evaluation.
            (EvalStatus::Failed, is_generic.then_some((None, EvalTrigger::MaxPlanAttempts)))
        } else if !self.is_blocked {
            (EvalStatus::Complete, None)
        } else if self.was_blocked {
            // Blocked before and still without a place: the same id, never a second one.
            (EvalStatus::Blocked, Some((Some("waits"), EvalTrigger::QueuedAllocs)))
        } else {
            // No follow-ups pending, or the evaluation's own delay unset or past.
            let is_made = !self.has_follow_up || self.delayed.is_none_or(|seconds| seconds <= 0);
            (EvalStatus::Complete, is_made.then_some((None, EvalTrigger::QueuedAllocs)))
        }
    }
}

#[test]
fn an_evaluation_ends_as_its_row_says_whatever_else_is_the_case() {
    let world = World::new(&spec(1));
    let all = Situation::every();
    assert_eq!(all.len(), 512);
    for situation in all {
        let (status, blocked) = situation.wanted();
        let blocked = blocked.map(|(id, trigger)| BlockedEvaluation { id: id.map(EvalId::from), trigger });
        assert_eq!(situation.end(&world), Ended { status, blocked }, "{situation:?}");
    }
}
