//! Whether a daemon can do its work: parts, each of which is well or says why not.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

/// What does not work, and why, by part.
pub type Problems = BTreeMap<&'static str, String>;

/// The state of a daemon; clones share it.
#[derive(Clone, Debug)]
pub struct Health(Arc<watch::Sender<Problems>>);

impl Health {
    /// A daemon that is not ready until each of these parts was reported healthy.
    pub fn of(parts: &[&'static str]) -> Self {
        let unknown = parts.iter().map(|part| (*part, "not known yet".to_owned())).collect();
        Self(Arc::new(watch::Sender::new(unknown)))
    }

    /// The part works.
    pub fn well(&self, part: &'static str) {
        if self.0.send_if_modified(|problems| problems.remove(part).is_some()) {
            tracing::info!(part, "is well");
        }
    }

    /// The part does not work.
    pub fn ill(&self, part: &'static str, reason: impl Into<String>) {
        let reason = reason.into();
        let is_news = self.0.send_if_modified(|problems| {
            let before = problems.insert(part, reason.clone());
            before.as_ref() != Some(&reason)
        });
        if is_news {
            tracing::warn!(part, reason, "is not well");
        }
    }

    /// What does not work, one line for each part; empty when the daemon is ready.
    pub fn problems(&self) -> Vec<String> {
        self.0.borrow().iter().map(|(part, reason)| format!("{part}: {reason}")).collect()
    }

    /// What does not work, as soon as it is something else than what is known.
    pub async fn other_than(&self, known: &Problems) -> Problems {
        let mut seen = self.0.subscribe();
        let changed = seen.wait_for(|problems| problems != known).await.map(|problems| problems.clone());
        match changed {
            Ok(problems) => problems,
            // Never: the sender is ours.
            Err(_) => std::future::pending().await,
        }
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
