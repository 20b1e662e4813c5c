//! The report of an allocation: how its tasks, its health and its volumes fare.

use drover_api::allocation::ClientStatus;
use drover_api::job::JobType;
use drover_core::lifecycle::DerivedStatus;
use jiff::Timestamp;

use super::AllocRunner;
use crate::allocations::hooks;
use crate::reporting::report::Report;

impl AllocRunner {
    /// Begins to track the health, unless there is a verdict for this deployment.
    pub(super) fn track_health(&mut self) {
        let deployment = self.allocation().spec.deployment_name.clone();
        if self.is_wanted() {
            let now = self.now();
            self.health.track(&self.plan.job, &self.plan.group, deployment, now);
        } else {
            self.health.expect(deployment);
        }
    }

    /// A verdict counts for one deployment only.
    pub(super) fn follow_deployment(&mut self) {
        if !self.health.is_for(&self.allocation().spec.deployment_name) {
            self.track_health();
        }
    }

    /// Leaves a report of how the allocation fares now.
    pub(super) fn report(&mut self) {
        let now = self.now();
        if !self.is_wanted() {
            self.health.stop();
        }
        self.follow_services(now);
        let status = self.tasks.status(self.max_run_exceeded).0;
        if let Some(verdict) = self.health.judge(&mut self.tasks, self.services.states(), status, now) {
            tracing::info!(allocation = self.plan.uid, healthy = verdict.healthy, "health is judged");
        }
        let report = self.make_report(now);
        self.plan.reports.put(&self.plan.uid, report);
    }

    fn make_report(&mut self, now: Timestamp) -> Report {
        let (status, description) = self.tasks.status(self.max_run_exceeded);
        let health_matters = matches!(self.plan.job.r#type, JobType::Service | JobType::System);
        if health_matters && status == DerivedStatus::Failed && self.health.note_failure(now).is_some() {
            tracing::info!(allocation = self.plan.uid, healthy = false, "health is judged");
        }
        Report {
            generation: self.allocation().metadata.generation.unwrap_or_default(),
            client_status: match status {
                DerivedStatus::Pending => ClientStatus::Pending,
                DerivedStatus::Running => ClientStatus::Running,
                DerivedStatus::Complete => ClientStatus::Complete,
                DerivedStatus::Failed => ClientStatus::Failed,
            },
            description: description.to_owned(),
            task_states: self.tasks.reported(),
            health: self.health.verdict().cloned(),
            ended_at: self.ended_at(),
            stop_requested_at: self.stop_requested_at,
            health_matters,
            stopping: !self.is_wanted() && !status.is_terminal(),
            volumes: hooks::statuses(&self.plan, self.tasks.is_over()),
            services: self.services.states().registrations(),
            checks: self.services.states().results(),
            network: self.plan.env.machine.networks.of(&self.plan.uid).map(|network| network.status()),
        }
    }

    /// The last end of its tasks, once all have ended and nothing is mounted any more.
    fn ended_at(&self) -> Option<Timestamp> {
        let last = || self.tasks.last_end().unwrap_or_else(|| self.now());
        (self.tasks.is_over() && self.plan.env.csi.is_clear(&self.plan.uid)).then(last)
    }

    /// Whether its tasks are to run.
    pub(super) fn is_wanted(&self) -> bool {
        self.plan.wanted.borrow().is_to_run()
    }
}
