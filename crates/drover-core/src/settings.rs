//! What the operator sets for the whole scheduler (`spec/shapes.md`, scheduler configuration). Defaults are those of
//! `spec/scheduler.md` 1.2.

use std::collections::BTreeMap;

use drover_api::job::JobType;
use serde::{Deserialize, Serialize};

/// Which nodes are better: the fullest that fit, or the emptiest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// Fill nodes up before others are used.
    #[default]
    Binpack,
    /// Spread load over all nodes.
    Spread,
}

/// For which types of jobs others of a lower priority are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "one independent switch for each type")]
pub struct Preemption {
    /// System jobs.
    pub system: bool,
    /// Sysbatch jobs.
    pub sysbatch: bool,
    /// Batch jobs.
    pub batch: bool,
    /// Service jobs.
    pub service: bool,
}

impl Default for Preemption {
    fn default() -> Self {
        Self { system: true, sysbatch: false, batch: false, service: false }
    }
}

impl Preemption {
    /// Whether jobs of a type may evict others.
    pub const fn is_on(self, job_type: JobType) -> bool {
        match job_type {
            JobType::System => self.system,
            JobType::Sysbatch => self.sysbatch,
            JobType::Batch => self.batch,
            JobType::Service => self.service,
        }
    }
}

/// What differs in one node pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PoolSettings {
    /// The algorithm there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_algorithm: Option<Algorithm>,
    /// Whether memoryMaxMB counts there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_oversubscription_enabled: Option<bool>,
}

/// The scheduler's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// Which nodes are better.
    pub algorithm: Algorithm,
    /// Who may evict others.
    pub preemption: Preemption,
    /// Whether tasks may use up to memoryMaxMB.
    pub memory_oversubscription: bool,
    /// What differs, by node pool.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_pools: BTreeMap<String, PoolSettings>,
}

impl Settings {
    /// The algorithm for jobs of a pool.
    pub fn algorithm(&self, pool: &str) -> Algorithm {
        self.node_pools.get(pool).and_then(|pool| pool.scheduler_algorithm).unwrap_or(self.algorithm)
    }

    /// Whether memoryMaxMB counts for jobs of a pool.
    pub fn oversubscribes_memory(&self, pool: &str) -> bool {
        let own = self.node_pools.get(pool).and_then(|pool| pool.memory_oversubscription_enabled);
        own.unwrap_or(self.memory_oversubscription)
    }
}
