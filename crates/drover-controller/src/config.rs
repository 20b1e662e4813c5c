//! The controller's configuration file.
//!
//! Input: YAML. Output: a checked [`ControllerConfig`]. Unknown keys and times that contradict each other are refused,
//! each with its field and the remedy.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use drover_api::GoDuration;
use drover_core::gc::Thresholds;
use drover_core::limits::Limits;
use drover_core::service::Cidr;
use drover_core::settings::Settings;
use jiff::SignedDuration;
use serde::Deserialize;

use drover_daemon::config::ConfigError;
use drover_daemon::monitor::{POLICIES, RequiredPolicy};

/// Everything the controller is told at its start.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ControllerConfig {
    /// drover's own namespace, which holds the Leases and the heartbeat's `ConfigMap`.
    pub namespace: String,
    /// How one of several controllers becomes the leader.
    pub leader_election: LeaderElection,
    /// How long nodes may be silent.
    pub heartbeat: Heartbeat,
    /// How nodes are chosen, and who may evict others.
    pub scheduler: Settings,
    /// How many allocations jobs may ask for.
    pub limits: Limits,
    /// What is deleted, and when.
    pub gc: GarbageConfig,
    /// Whether a controller without the admission policy that limits agents is not ready.
    pub requires_node_restriction: bool,
    /// More admission policies without which it is not ready, by name.
    pub required_policies: BTreeSet<String>,
    /// Who may serve volumes.
    pub volumes: VolumesConfig,
    /// Where services may lead.
    pub services: ServicesConfig,
    /// Whether a gateway is installed. Where none is, jobs wait whose nodes would get values from it.
    pub has_gateway: bool,
    /// What is counted.
    pub metrics: MetricsConfig,
}

/// Where services may lead.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ServicesConfig {
    /// Ranges of addresses beside those of a node's own Kubernetes node: an agent that lies about its address cannot
    /// draw requests there.
    #[serde(rename = "allowedCIDRs")]
    pub allowed_cidrs: Vec<Cidr>,
}

/// Who may serve volumes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct VolumesConfig {
    /// The namespaces whose jobs may run CSI plugins; those of others do not count. All where it is empty: then who may
    /// update `jobs/csiplugin` in a namespace may run them there.
    pub plugin_namespaces: BTreeSet<String>,
}

/// What is counted for scrapes.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MetricsConfig {
    /// Whether each job is named by `drover_job_info`: as many series as there are jobs.
    pub per_job: bool,
}

impl Default for ControllerConfig {
    fn default() -> Self {
        Self {
            namespace: drover_api::SYSTEM_NAMESPACE.to_owned(),
            leader_election: LeaderElection::default(),
            heartbeat: Heartbeat::default(),
            scheduler: Settings::default(),
            limits: Limits::default(),
            gc: GarbageConfig::default(),
            requires_node_restriction: false,
            required_policies: BTreeSet::new(),
            volumes: VolumesConfig::default(),
            services: ServicesConfig::default(),
            has_gateway: true,
            metrics: MetricsConfig::default(),
        }
    }
}

/// How one of several controllers becomes the leader.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LeaderElection {
    /// How long others wait after a leader's last renewal.
    lease_duration: GoDuration,
    /// How long a leader that cannot renew goes on.
    renew_deadline: GoDuration,
    /// Pause between two renewals or tries.
    retry_period: GoDuration,
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self {
            lease_duration: GoDuration::from_secs(15),
            renew_deadline: GoDuration::from_secs(10),
            retry_period: GoDuration::from_secs(2),
        }
    }
}

impl LeaderElection {
    /// How long others wait after a leader's last renewal.
    pub fn lease_duration(self) -> Duration {
        self.lease_duration.to_std()
    }

    /// How long a leader that cannot renew goes on.
    pub fn renew_deadline(self) -> Duration {
        self.renew_deadline.to_std()
    }

    /// Pause between two renewals or tries.
    pub fn retry_period(self) -> Duration {
        self.retry_period.to_std()
    }
}

/// How long nodes may be silent.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Heartbeat {
    #[serde(rename = "minTTL")]
    min_ttl: GoDuration,
    grace: GoDuration,
    /// Most beats per second of all nodes together.
    pub max_per_second: u32,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self { min_ttl: GoDuration::from_secs(10), grace: GoDuration::from_secs(10), max_per_second: 250 }
    }
}

impl Heartbeat {
    /// Shortest TTL; with more nodes it grows in powers of two.
    pub fn min_ttl(self) -> Duration {
        self.min_ttl.to_std()
    }

    /// Silence that is allowed beyond the TTL.
    pub fn grace(self) -> Duration {
        self.grace.to_std()
    }
}

/// What is deleted, and when (`spec/scheduler.md` 12).
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GarbageConfig {
    interval: GoDuration,
    alloc_threshold: GoDuration,
    batch_alloc_threshold: GoDuration,
    job_threshold: GoDuration,
    node_threshold: GoDuration,
    deployment_threshold: GoDuration,
    claim_interval: GoDuration,
    claim_threshold: GoDuration,
    /// Most ended allocations of a job whose slot a later one has held.
    kept_allocs: u32,
}

impl Default for GarbageConfig {
    fn default() -> Self {
        let whole = |duration: SignedDuration| GoDuration::from_secs(duration.as_secs());
        let known = Thresholds::default();
        Self {
            interval: GoDuration::from_secs(300),
            alloc_threshold: whole(known.alloc),
            batch_alloc_threshold: whole(known.batch_alloc),
            job_threshold: whole(known.job),
            node_threshold: whole(known.node),
            deployment_threshold: whole(known.deployment),
            claim_interval: GoDuration::from_secs(300),
            claim_threshold: GoDuration::from_secs(300),
            kept_allocs: u32::try_from(known.kept_allocs).unwrap_or(u32::MAX),
        }
    }
}

fn signed(duration: GoDuration) -> SignedDuration {
    SignedDuration::try_from(duration.to_std()).unwrap_or(SignedDuration::MAX)
}

impl GarbageConfig {
    /// How often it is looked.
    pub fn interval(self) -> Duration {
        self.interval.to_std()
    }

    /// How often volumes are looked for whose release got stuck.
    pub fn claim_interval(self) -> Duration {
        self.claim_interval.to_std()
    }

    /// How long ago such a volume must have changed.
    pub fn claim_threshold(self) -> SignedDuration {
        signed(self.claim_threshold)
    }

    /// How old what goes must be.
    pub fn thresholds(self) -> Thresholds {
        Thresholds {
            alloc: signed(self.alloc_threshold),
            batch_alloc: signed(self.batch_alloc_threshold),
            job: signed(self.job_threshold),
            node: signed(self.node_threshold),
            deployment: signed(self.deployment_threshold),
            kept_allocs: usize::try_from(self.kept_allocs).unwrap_or(usize::MAX),
        }
    }

    /// The first field that cannot be, with the reason.
    fn wrong(self) -> Option<(&'static str, &'static str)> {
        if self.interval < GoDuration::from_secs(1) {
            return Some(("gc.interval", "must be at least 1s"));
        }
        if self.claim_interval < GoDuration::from_secs(1) {
            return Some(("gc.claimInterval", "must be at least 1s"));
        }
        [
            ("gc.allocThreshold", self.alloc_threshold),
            ("gc.batchAllocThreshold", self.batch_alloc_threshold),
            ("gc.jobThreshold", self.job_threshold),
            ("gc.nodeThreshold", self.node_threshold),
            ("gc.deploymentThreshold", self.deployment_threshold),
            ("gc.claimThreshold", self.claim_threshold),
        ]
        .into_iter()
        .find(|(_, threshold)| *threshold < GoDuration::ZERO)
        .map(|(field, _)| (field, "must not be below 0"))
    }
}

/// The policy that keeps an agent's token to its own node.
const NODE_RESTRICTION: &str = "drover-node-restriction";

impl ControllerConfig {
    /// The admission policies without which the controller is not ready.
    pub fn policies(&self) -> Vec<RequiredPolicy> {
        let is_required = |policy: &RequiredPolicy| {
            self.required_policies.contains(policy.name)
                || (self.requires_node_restriction && policy.name == NODE_RESTRICTION)
        };
        POLICIES.into_iter().filter(is_required).collect()
    }

    /// Reads and checks a file.
    ///
    /// # Errors
    /// What is wrong with it, with the field.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Checks the text of a file.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let config: Self = if text.trim().is_empty() {
            Self::default()
        } else {
            serde_saphyr::from_str(text)
                .map_err(|error| ConfigError::Parse { path: path.to_owned(), reason: error.to_string() })?
        };
        config.check(path)?;
        Ok(config)
    }

    fn check(&self, path: &Path) -> Result<(), ConfigError> {
        let invalid =
            |field, reason: &str| ConfigError::Invalid { path: path.to_owned(), field, reason: reason.to_owned() };
        let election = self.leader_election;
        if self.namespace.is_empty() {
            return Err(invalid("namespace", "is empty; name the namespace that drover is installed in"));
        }
        if election.retry_period <= GoDuration::ZERO || election.retry_period >= election.renew_deadline {
            return Err(invalid("leaderElection.retryPeriod", "must be above 0 and below renewDeadline"));
        }
        if election.renew_deadline >= election.lease_duration {
            return Err(invalid(
                "leaderElection.renewDeadline",
                "must be below leaseDuration, or two leaders may act at once",
            ));
        }
        if self.heartbeat.min_ttl <= GoDuration::ZERO {
            return Err(invalid("heartbeat.minTTL", "must be above 0"));
        }
        if self.heartbeat.grace <= GoDuration::ZERO {
            return Err(invalid("heartbeat.grace", "must be above 0"));
        }
        if self.heartbeat.max_per_second == 0 {
            return Err(invalid("heartbeat.maxPerSecond", "must be above 0"));
        }
        let known = POLICIES.map(|policy| policy.name);
        if let Some(name) = self.required_policies.iter().find(|name| !known.contains(&name.as_str())) {
            let reason = format!("{name} is no policy of drover; take some of {}", known.join(", "));
            return Err(invalid("requiredPolicies", &reason));
        }
        for (field, limit) in [
            ("limits.allocationsPerJob", self.limits.allocations_per_job),
            ("limits.allocationsPerNamespace", self.limits.allocations_per_namespace),
        ] {
            if limit < 1 {
                return Err(invalid(field, "must be at least 1; leave it out for the default"));
            }
        }
        if let Some((field, reason)) = self.gc.wrong() {
            return Err(invalid(field, reason));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ControllerConfig, String> {
        ControllerConfig::parse(text, Path::new("c.yaml")).map_err(|error| error.to_string())
    }

    #[test]
    fn an_empty_file_means_the_defaults() {
        let config = parse("").unwrap();
        assert_eq!(config.leader_election.lease_duration(), Duration::from_secs(15));
        assert_eq!(config.heartbeat.min_ttl(), Duration::from_secs(10));
    }

    #[test]
    fn a_wrong_value_is_named_with_its_field() {
        for (text, field) in [
            ("leaderElection: {renewDeadline: 20s}", "leaderElection.renewDeadline"),
            ("heartbeat: {minTTL: 0s}", "heartbeat.minTTL"),
            ("heartbeat: {grace: 5}", "grace"),
            ("requiredPolicies: [drover-all]", "requiredPolicies"),
            ("limits: {allocationsPerJob: 0}", "limits.allocationsPerJob"),
            ("limits: {allocationsPerNamespace: -1}", "limits.allocationsPerNamespace"),
            ("gc: {interval: 0s}", "gc.interval"),
            ("gc: {nodeThreshold: -1h}", "gc.nodeThreshold"),
            ("gc: {claimInterval: 0s}", "gc.claimInterval"),
            ("gc: {claimThreshold: -1s}", "gc.claimThreshold"),
            ("scheduler: {algorithm: tightest}", "algorithm"),
            ("leaderElektion: {}", "leaderElektion"),
            ("metrics: {perJobs: true}", "perJobs"),
            ("volumes: {pluginNamespace: [a]}", "pluginNamespace"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(field), "{text}: {error}");
        }
    }
}
