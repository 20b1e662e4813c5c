//! Whether a daemon can do its work: parts, each of which is well or says why not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The state of a daemon; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<BTreeMap<&'static str, String>>>);

impl Health {
    /// A daemon that is not ready until each of these parts was reported healthy.
    pub fn of(parts: &[&'static str]) -> Self {
        Self(Arc::new(Mutex::new(parts.iter().map(|part| (*part, "not known yet".to_owned())).collect())))
    }

    /// The part works.
    pub fn well(&self, part: &'static str) {
        let had = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(part);
        if had.is_some() {
            tracing::info!(part, "is well");
        }
    }

    /// The part does not work.
    pub fn ill(&self, part: &'static str, reason: impl Into<String>) {
        let reason = reason.into();
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(part, reason.clone());
        if before.as_ref() != Some(&reason) {
            tracing::warn!(part, reason, "is not well");
        }
    }

    /// What does not work, one line for each part; empty when the daemon is ready.
    pub fn problems(&self) -> Vec<String> {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parts.iter().map(|(part, reason)| format!("{part}: {reason}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_ready_when_every_part_is_well_and_says_which_is_not() {
        let health = Health::of(&["leader", "policies"]);
        assert_eq!(health.problems(), ["leader: not known yet", "policies: not known yet"]);
        health.well("leader");
        health.ill("policies", "drover-node-restriction is missing");
        assert_eq!(health.problems(), ["policies: drover-node-restriction is missing"]);
        health.well("policies");
        assert_eq!(health.problems(), [""; 0]);
    }
}
