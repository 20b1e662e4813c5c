//! The services of an allocation: they follow its tasks, and a check that stays unhealthy has tasks restarted.

use jiff::Timestamp;

use super::AllocRunner;
use crate::reporting::events::Reason;

impl AllocRunner {
    /// Services follow the tasks; who watches events hears of each that becomes ready or is not any more.
    pub(super) fn follow_services(&mut self, now: Timestamp) {
        for (name, is_ready) in self.services.follow(&self.tasks, now) {
            let (reason, text) = if is_ready {
                (Reason::ServiceReady, format!("service {name} is ready: its tasks run and its checks pass"))
            } else {
                let fault = self.services.states().first_fault();
                let why = fault.unwrap_or_else(|| "a task of it does not run".to_owned());
                (Reason::ServiceNotReady, format!("service {name} is not ready any more: {why}"))
            };
            self.plan.env.events.emit(&self.allocation(), reason, text);
        }
    }

    /// First others find these services no more, then the group's shutdown delay is waited, then their tasks end and
    /// start again as their restart policy allows.
    pub(super) fn restart_unhealthy(&mut self) {
        let now = self.now();
        let delay = self.plan.group.shutdown_delay.unwrap_or_default().to_std();
        let delay = if self.orders.borrow().skip_delay { std::time::Duration::ZERO } else { delay };
        for restart in self.services.begin_restarts(now, delay) {
            let text = format!("{}: restarting {}", restart.reason, restart.tasks.join(", "));
            self.plan.env.events.emit(&self.allocation(), Reason::CheckFailed, text);
        }
        for restart in self.services.ripe_restarts() {
            let mut ordered = false;
            for task in &restart.tasks {
                match self.commands.end_unhealthy(task, restart.reason.clone()) {
                    Ok(()) => ordered = true,
                    Err(error) => {
                        tracing::warn!(allocation = self.plan.uid, task, %error, "a task is not restarted by its check");
                    }
                }
            }
            if !ordered {
                self.services.call_off(&restart, now);
            }
        }
        self.report();
    }
}
