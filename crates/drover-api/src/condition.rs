//! Conditions: wire-equal to `metav1.Condition`, with the types and reasons of each kind as enums.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::message;
use crate::string_enum::string_enum;

string_enum! {
    /// Whether a condition holds.
    pub enum ConditionStatus {
        /// It holds.
        True = "True",
        /// It does not hold.
        False = "False",
        /// It is not known yet.
        Unknown = "Unknown",
    }
}

/// One aspect of an object's state, as `kubectl wait` and GitOps tools read it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition<T, R> {
    /// Which aspect this is.
    pub r#type: T,
    /// Whether it holds: True, False or Unknown.
    pub status: ConditionStatus,
    /// The metadata.generation that this was judged for.
    #[serde(default)]
    #[schemars(range(min = -1))]
    pub observed_generation: i64,
    /// When status last changed.
    pub last_transition_time: Timestamp,
    /// The reason, as one word for programs.
    pub reason: R,
    /// The reason and what would help, as one sentence.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub message: String,
}

/// A condition as wanted now; its transition time follows from the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted<T, R> {
    /// Which aspect.
    pub r#type: T,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, for programs.
    pub reason: R,
    /// The reason, as a sentence.
    pub message: String,
}

impl<T, R> Wanted<T, R> {
    /// A condition that holds.
    pub fn yes(r#type: T, reason: R, message: impl Into<String>) -> Self {
        Self { r#type, status: ConditionStatus::True, reason, message: message.into() }
    }

    /// A condition that does not hold.
    pub fn no(r#type: T, reason: R, message: impl Into<String>) -> Self {
        Self { r#type, status: ConditionStatus::False, reason, message: message.into() }
    }

    /// A condition that is not known yet.
    pub fn unknown(r#type: T, reason: R, message: impl Into<String>) -> Self {
        Self { r#type, status: ConditionStatus::Unknown, reason, message: message.into() }
    }
}

/// The new list of conditions: each wanted one, with `lastTransitionTime` kept where `status` did not change.
///
/// Conditions that are not wanted any more are left out. Messages are cut to [`message::LIMIT`] characters.
pub fn merged<T: Copy + PartialEq, R: Copy>(
    before: &[Condition<T, R>],
    wanted: Vec<Wanted<T, R>>,
    generation: i64,
    now: Timestamp,
) -> Vec<Condition<T, R>> {
    wanted
        .into_iter()
        .map(|want| {
            let same = before.iter().find(|old| old.r#type == want.r#type && old.status == want.status);
            Condition {
                r#type: want.r#type,
                status: want.status,
                observed_generation: generation,
                last_transition_time: same.map_or(now, |old| old.last_transition_time),
                reason: want.reason,
                message: message::cut(want.message),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{JobConditionType as T, JobReason as R};

    #[test]
    fn transition_time_moves_only_with_the_status() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let first = merged(&[], vec![Wanted::no(T::Ready, R::Placing, "1 of 2")], 1, at(10));
        let second = merged(&first, vec![Wanted::no(T::Ready, R::Placing, "0 of 2")], 2, at(20));
        assert_eq!(second[0].last_transition_time, at(10));
        assert_eq!(second[0].observed_generation, 2);
        let third = merged(&second, vec![Wanted::yes(T::Ready, R::AllHealthy, "")], 2, at(30));
        assert_eq!(third[0].last_transition_time, at(30));
    }

    #[test]
    fn a_long_message_is_cut() {
        let long = merged(&[], vec![Wanted::no(T::Ready, R::Placing, "é".repeat(3000))], 1, Timestamp::UNIX_EPOCH);
        assert_eq!(long[0].message.chars().count(), message::LIMIT);
    }
}
