//! Up to where a job was evaluated (`spec/deployments.md` 6.3).

/// What is known of one evaluation of a job. An index counts the verdicts on allocations that a view has taken in (see
/// [`crate::model::Alloc::health_index`]): a resourceVersion would not do, as the answer to a write overtakes older
/// writes that the watch has yet to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvalRecord {
    /// The newest verdict that its view showed; none while it waits.
    pub snapshot_index: Option<u64>,
    /// The newest verdict that was known when it was made.
    pub create_index: u64,
    /// Whether it was cancelled, and so saw nothing.
    pub is_cancelled: bool,
}

/// The newest verdict that some evaluation saw or will see; 0 where there is none. An evaluation that is blocked counts
/// like any other: it must never hold another group's progress back.
pub fn latest_index(evaluations: impl IntoIterator<Item = EvalRecord>) -> u64 {
    let seen = evaluations.into_iter().filter(|one| !one.is_cancelled);
    seen.map(|one| one.snapshot_index.unwrap_or(one.create_index)).max().unwrap_or(0)
}
