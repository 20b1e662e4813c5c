//! Whose turn it is to get an object's newest values.

use std::collections::BTreeMap;

use drover_api::Allocation;
use drover_api::group::Group;
use drover_api::value_object::ValueObject;
use jiff::{SignedDuration, Timestamp};

use super::members::{Participant, Stand, members};
use super::policy::RollingPolicy;
use crate::health::{HealthPolicy, HealthVerdict, Tracker, reported};

/// What an allocation is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It has the newest values, or starts with them.
    Holds,
    /// It may take them.
    Takes,
    /// It waits for others to be well with them.
    Waits,
    /// It waits, because this allocation is not well with them.
    Stopped(String),
}

/// What is known.
#[derive(Clone, Copy, Debug)]
pub struct RolloutView<'a> {
    /// The pace.
    pub policy: RollingPolicy,
    /// The group.
    pub group: &'a Group,
    /// The object.
    pub object: &'a ValueObject,
    /// The version of its newest values.
    pub newest: &'a str,
}

/// What follows.
#[must_use]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolloutStep {
    /// Of each allocation that takes part, by its uid.
    pub turns: BTreeMap<String, Turn>,
    /// When to look again if nothing changes before.
    pub wake_at: Option<Timestamp>,
}

/// The roll-out of one object's values among one group's allocations: what was seen so far of the health of those that
/// have the newest. One that knows nothing yet comes to the same answers, later.
#[derive(Clone, Debug, Default)]
pub struct ValueRollout {
    judged: BTreeMap<String, Judged>,
}

#[derive(Clone, Debug)]
struct Judged {
    since: Timestamp,
    tracker: Tracker,
    /// None: not known yet. One that was not well may yet become so.
    is_well: Option<bool>,
}

impl ValueRollout {
    /// Decides whose turn it is, from all allocations of the group. O(allocations log allocations).
    pub fn step<'a>(
        &mut self,
        view: RolloutView<'_>,
        allocations: impl IntoIterator<Item = &'a Allocation>,
        now: Timestamp,
    ) -> RolloutStep {
        let all = members(allocations, &view.object.key(), view.newest);
        let mut step = RolloutStep::default();
        if !all.iter().any(|member| member.stand == Stand::Behind) {
            self.judged.clear();
            step.turns = all.iter().map(|member| (member.uid().to_owned(), Turn::Holds)).collect();
            return step;
        }
        let mut earlier = std::mem::take(&mut self.judged);
        let (mut ill, mut n_open) = (None, 0);
        for member in &all {
            let is_well = match member.stand {
                Stand::Behind => continue,
                Stand::Failed => Some(false),
                Stand::Newest(since) => {
                    let known = earlier.remove(member.uid()).filter(|judged| judged.since == since);
                    let mut judged = known.unwrap_or_else(|| Judged::new(view.policy.health, since, now));
                    step.wake_at = [step.wake_at, judged.look(view, member, now)].into_iter().flatten().min();
                    let is_well = judged.is_well;
                    self.judged.insert(member.uid().to_owned(), judged);
                    is_well
                }
            };
            match is_well {
                Some(true) => {}
                Some(false) => ill = ill.or(Some(member.name())),
                None => n_open += 1,
            }
        }
        let mut n_before = 0;
        for member in &all {
            let turn = match (member.stand, ill) {
                (Stand::Newest(_) | Stand::Failed, _) => Turn::Holds,
                (Stand::Behind, Some(ill)) => Turn::Stopped(ill.to_owned()),
                (Stand::Behind, None) => {
                    n_before += 1;
                    if n_open + n_before <= view.policy.max_parallel { Turn::Takes } else { Turn::Waits }
                }
            };
            step.turns.insert(member.uid().to_owned(), turn);
        }
        step
    }
}

impl Judged {
    /// Judged from when it got the values, or from now where that is long ago: what it did meanwhile was not seen.
    fn new(policy: HealthPolicy, since: Timestamp, now: Timestamp) -> Self {
        let span = SignedDuration::try_from(policy.deadline_after).unwrap_or(SignedDuration::MAX);
        let is_long_ago = since.checked_add(span).is_ok_and(|deadline| deadline <= now);
        Self { since, tracker: Tracker::new(policy, if is_long_ago { now } else { since }), is_well: None }
    }

    /// Takes in what is reported of it; when to look again.
    fn look(&mut self, view: RolloutView<'_>, member: &Participant<'_>, now: Timestamp) -> Option<Timestamp> {
        if self.is_well == Some(true) {
            return None;
        }
        let seen = reported(view.group, &member.alloc.status.clone().unwrap_or_default());
        let step = self.tracker.observe(&seen, now);
        match step.verdict {
            None => return step.wake_at,
            Some(HealthVerdict::Healthy) => self.is_well = Some(true),
            Some(HealthVerdict::Unhealthy { .. }) => {
                self.is_well = Some(false);
                self.tracker = Tracker::new(view.policy.health, now);
                // The next look is from the new beginning; where it is ill at once, a report comes first.
                return self.tracker.observe(&seen, now).wake_at;
            }
        }
        None
    }
}
