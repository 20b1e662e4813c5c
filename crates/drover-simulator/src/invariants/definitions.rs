//! What the jobs of a run are, as the invariants need it.

use std::collections::HashMap;
use std::sync::Arc;

use drover_api::job::JobType;
use drover_core::definition::Definition;

/// The newest definition of each job, by its uid.
pub(super) type Definitions = HashMap<String, Arc<Definition>>;

/// Whether a job has one allocation per node.
pub(super) fn is_per_node(definitions: &Definitions, job_uid: &str) -> bool {
    definitions
        .get(job_uid)
        .is_some_and(|definition| matches!(definition.job_type(), JobType::System | JobType::Sysbatch))
}
