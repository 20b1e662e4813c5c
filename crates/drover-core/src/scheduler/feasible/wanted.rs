//! A group that looks for nodes.

use drover_api::group::Group;

use crate::definition::Definition;
use crate::ids::JobKey;

/// What of a job decides which nodes a group may use.
#[derive(Clone, Copy, Debug)]
pub struct WantedGroup<'a> {
    /// The job.
    pub job: &'a JobKey,
    /// Its definition.
    pub definition: &'a Definition,
    /// The group.
    pub group: &'a Group,
}
