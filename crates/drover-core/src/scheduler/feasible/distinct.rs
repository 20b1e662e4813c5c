//! The limits of `distinct_hosts` and `distinct_property` (`spec/scheduler.md` 4.4).

use drover_api::group::Group;
use drover_api::placement::{Constraint, Operand};

use crate::definition::Definition;

/// Whether the allocations of the job, or of the group, must be on different nodes. The right side turns it off only as
/// `false`.
pub fn distinct_hosts(definition: &Definition, group: &Group) -> (bool, bool) {
    let on = |constraints: &[Constraint]| {
        constraints
            .iter()
            .any(|constraint| constraint.operand == Operand::DistinctHosts && !is_false(&constraint.r_target))
    };
    (on(&definition.spec.constraints), on(&group.constraints))
}

fn is_false(text: &str) -> bool {
    matches!(text, "false" | "False" | "FALSE" | "f" | "F" | "0")
}

/// A limit on allocations that share a value of a target.
#[derive(Clone, Copy, Debug)]
pub struct DistinctProperty<'a> {
    /// The target.
    pub target: &'a str,
    /// How many may share a value.
    pub limit: i64,
    /// Whether all allocations of the job count, or the group's alone.
    pub of_job: bool,
}

/// The limits of `distinct_property`.
pub fn distinct_properties<'a>(definition: &'a Definition, group: &'a Group) -> Vec<DistinctProperty<'a>> {
    let pick = |constraints: &'a [Constraint], of_job: bool| {
        let distinct = constraints.iter().filter(|constraint| constraint.operand == Operand::DistinctProperty);
        distinct.map(move |constraint| DistinctProperty {
            target: &constraint.l_target,
            limit: constraint.r_target.trim().parse().unwrap_or(1),
            of_job,
        })
    };
    pick(&definition.spec.constraints, true).chain(pick(&group.constraints, false)).collect()
}
