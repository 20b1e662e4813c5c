//! How often an evaluation is tried when its plan could not be carried out, and what becomes of it in the end
//! (`spec/scheduler.md` 2.4). Pure: what was planned and what was written go in, what to do next comes out.

use drover_api::job::{EvalStatus, EvalTrigger, JobType};

use crate::ids::EvalId;
use crate::scheduler::plan::{Evaluation, Plan};

/// Tries of a service or system job's evaluation.
const MANY: u32 = 5;
/// Tries of a batch or sysbatch job's evaluation.
const FEW: u32 = 2;

/// What became of a submitted plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// Everything was written.
    Whole,
    /// Some of it was written.
    Part,
    /// Nothing was written.
    Nothing,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextAttempt {
    /// Plan again on a newer picture.
    Again,
    /// The evaluation is done.
    Done,
    /// It failed as often as it may.
    Exhausted,
}

/// The tries of one evaluation.
#[derive(Clone, Copy, Debug)]
pub struct Attempts {
    most: u32,
    used: u32,
}

impl Attempts {
    /// The tries that a job's type has.
    pub const fn of(job_type: JobType) -> Self {
        let most = match job_type {
            JobType::Service | JobType::System => MANY,
            JobType::Batch | JobType::Sysbatch => FEW,
        };
        Self { most, used: 0 }
    }

    /// Takes the outcome of a try in. Progress gives all tries back.
    pub fn after(&mut self, submitted: Submitted) -> NextAttempt {
        match submitted {
            Submitted::Whole => NextAttempt::Done,
            Submitted::Part => {
                self.used = 0;
                NextAttempt::Again
            }
            Submitted::Nothing => {
                self.used += 1;
                if self.used >= self.most { NextAttempt::Exhausted } else { NextAttempt::Again }
            }
        }
    }
}

/// How an evaluation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// complete, failed, or blocked where the same evaluation waits again.
    pub status: EvalStatus,
    /// The evaluation that waits for room, if one does: its own id where it waited before.
    pub blocked: Option<BlockedEvaluation>,
}

/// An evaluation that waits for room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedEvaluation {
    /// Its id; none for a new one.
    pub id: Option<EvalId>,
    /// What it is triggered by when it is tried again.
    pub trigger: EvalTrigger,
}

/// The end of an evaluation whose last plan this is. `was_blocked` is the id under which the job waited, where this
/// evaluation is that one.
pub fn end(
    job_type: JobType,
    eval: &Evaluation,
    plan: &Plan,
    next: NextAttempt,
    was_blocked: Option<&EvalId>,
) -> Ended {
    let is_counted = matches!(job_type, JobType::Service | JobType::Batch);
    if plan.refused.is_some() {
        return Ended { status: EvalStatus::Failed, blocked: None };
    }
    if next == NextAttempt::Exhausted {
        let blocked = is_counted.then_some(BlockedEvaluation { id: None, trigger: EvalTrigger::MaxPlanAttempts });
        return Ended { status: EvalStatus::Failed, blocked };
    }
    if !plan.is_blocked {
        return Ended { status: EvalStatus::Complete, blocked: None };
    }
    if let Some(id) = was_blocked {
        let blocked = BlockedEvaluation { id: Some(id.clone()), trigger: EvalTrigger::QueuedAllocs };
        return Ended { status: EvalStatus::Blocked, blocked: Some(blocked) };
    }
    // A delayed evaluation that is on its way makes another one unnecessary.
    let waits_otherwise = !plan.follow_ups.is_empty() && eval.wait_until.is_some_and(|until| until > eval.now);
    let blocked = (!waits_otherwise).then_some(BlockedEvaluation { id: None, trigger: EvalTrigger::QueuedAllocs });
    Ended { status: EvalStatus::Complete, blocked }
}
