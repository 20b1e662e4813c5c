//! What jobs ask for, against the operator's limits: asked before a job is planned, given back when it ends.

use std::sync::Arc;

use drover_api::Job;
use drover_api::job::{EvalTrigger, JobType};
use drover_core::definition::Definition;
use drover_core::ids::JobKey;
use drover_core::limits;
use drover_core::periodic;
use drover_core::validate::Violation;
use drover_store::convert;

use super::evaluation::Jobs;
use super::status::is_done;
use crate::shared::Shared;

impl Jobs {
    /// Asks for what a job wants. Returns the limit that it is over, where it is over one.
    pub(super) fn admit(
        &mut self,
        shared: &mut Shared,
        key: &JobKey,
        object: &Job,
        definition: &Definition,
    ) -> Arc<[Violation]> {
        // A template places nothing itself, and the jobs that it launches ask for themselves.
        let asked = if is_done(object) || periodic::is_template(&definition.spec) {
            0
        } else {
            let scaled = convert::scale(&object.spec);
            limits::asked(definition, scaled.as_ref(), n_nodes(shared, definition))
        };
        let verdict = self.asked.admit(key, definition.job_type(), asked, shared.config.limits);
        self.let_others_try(shared, key);
        let over_limit = verdict.err();
        let violations = over_limit.clone().into_iter().collect();
        if let Some(known) = self.known.get_mut(key) {
            known.over_limit = over_limit;
        }
        violations
    }

    /// A version of a job that an earlier leader has admitted. Later ones have been asked for already.
    pub(super) fn restore(&mut self, shared: &Shared, key: &JobKey, definition: &Definition) {
        if shared.has_begun {
            return;
        }
        let is_over = shared.job(key).is_some_and(|job| is_done(job));
        if !is_over && !periodic::is_template(&definition.spec) {
            self.asked.restore(key, limits::asked(definition, None, n_nodes(shared, definition)));
        }
    }

    /// A job asks for nothing any more.
    pub(super) fn release(&mut self, shared: &mut Shared, key: &JobKey) {
        self.asked.release(key);
        if let Some(known) = self.known.get_mut(key) {
            known.over_limit = None;
        }
        self.let_others_try(shared, key);
    }

    fn let_others_try(&mut self, shared: &mut Shared, key: &JobKey) {
        for job in self.asked.take_fitting(&key.namespace, shared.config.limits) {
            shared.enqueue(&job, EvalTrigger::QueuedAllocs);
        }
    }
}

/// The nodes of the job's pool, where that matters.
fn n_nodes(shared: &Shared, definition: &Definition) -> usize {
    match definition.job_type() {
        JobType::Service | JobType::Batch => 0,
        JobType::System | JobType::Sysbatch => {
            let pool = &definition.spec.node_pool;
            shared.view.nodes().filter(|node| pool == "all" || node.pool == *pool).count()
        }
    }
}
