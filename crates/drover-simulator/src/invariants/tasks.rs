//! I6: one run of a task at a time, and none ends without a request.

use std::collections::{HashMap, HashSet};

use drover_api::Allocation;
use drover_api::allocation::{ClientStatus, DesiredStatus};
use drover_api::service::Service;
use drover_store::memory::StoredChange;

use super::definitions::Definitions;
use drover_agent::simulated::{TaskChange, TaskRun};

/// What is known of an allocation whose tasks run.
#[derive(Clone, Copy, Debug)]
struct KnownTasks {
    /// Whether all of it is to run, and nothing in its definition ends it.
    is_to_stay: bool,
}

/// Whether a check of a service restarts its tasks when it fails.
fn restarts(service: &Service) -> bool {
    service.checks.iter().any(|check| check.check_restart.as_ref().is_some_and(|restart| restart.limit > 0))
}

/// The runs of all tasks.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    /// By allocation and task: the run, and its node.
    runs: HashMap<(String, String), (String, String)>,
    known: HashMap<String, KnownTasks>,
    /// Allocations whose tasks an operator asked to restart.
    restarted: HashSet<String>,
}

impl Tasks {
    pub(super) fn expect_restart(&mut self, uid: &str) {
        self.restarted.insert(uid.to_owned());
    }

    pub(super) fn observe_alloc(&mut self, change: &StoredChange, definitions: &Definitions) {
        let uid = change.object().uid().to_owned();
        let Some(alloc) = change.after.as_ref().and_then(|after| after.typed::<Allocation>().ok()) else {
            self.known.remove(&uid);
            return;
        };
        let spec = &alloc.spec;
        let group = definitions.get(&spec.job_uid).and_then(|definition| definition.group(&spec.group));
        let ends_by_itself = group.is_none_or(|group| {
            group.tasks.len() > 1
                || group.max_run_duration.is_some()
                || group.stop_after_client_disconnect.is_some()
                || group.disconnect.as_ref().is_some_and(|block| block.stop_on_client_after.is_some())
                || group.services.iter().chain(group.tasks.iter().flat_map(|task| &task.services)).any(restarts)
        });
        let client = alloc.status.as_ref().map(|status| status.client_status).unwrap_or_default();
        let is_to_stay = spec.desired_status == DesiredStatus::Run
            && alloc.metadata.deletion_timestamp.is_none()
            && client == ClientStatus::Running
            && !ends_by_itself;
        self.known.insert(uid, KnownTasks { is_to_stay });
    }

    pub(super) fn observe(&mut self, node: &str, run: &TaskRun, change: TaskChange, found: &mut Vec<String>) {
        let of = (run.allocation.clone(), run.task.clone());
        match change {
            TaskChange::Started => {
                if let Some((other, there)) = self.runs.insert(of, (run.run.clone(), node.to_owned())) {
                    found.push(format!(
                        "I6: task {} of allocation {} starts on {node} while its run {other} on {there} goes on",
                        run.task, run.allocation
                    ));
                }
            }
            TaskChange::StopAsked => {
                let is_to_stay = self.known.get(&run.allocation).is_some_and(|known| known.is_to_stay);
                if is_to_stay && !self.restarted.contains(&run.allocation) {
                    found.push(format!(
                        "I6: task {} of allocation {} is killed on {node} and nothing asked for that",
                        run.task, run.allocation
                    ));
                }
            }
            TaskChange::Ended => {
                if self.runs.get(&of).is_some_and(|(known, _)| *known == run.run) {
                    self.runs.remove(&of);
                }
            }
        }
    }

    /// Whether tasks of an allocation run.
    pub(super) fn has_any(&self, uid: &str) -> bool {
        self.runs.keys().any(|(of, _)| of == uid)
    }

    pub(super) fn lose_power(&mut self, node: &str) {
        self.runs.retain(|_, (_, there)| there != node);
    }
}
