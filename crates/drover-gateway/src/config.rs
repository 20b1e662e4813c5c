//! The gateway's configuration file.
//!
//! Input: YAML. Output: a checked [`GatewayConfig`]. Unknown keys and times that contradict each other are refused,
//! each with its field and the remedy.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use drover_api::GoDuration;
use drover_core::settings::Settings;
use drover_daemon::config::ConfigError;
use serde::Deserialize;

/// Everything the gateway is told at its start.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GatewayConfig {
    /// drover's own namespace, which holds the gateway's Service, Secret and `ConfigMap`.
    pub namespace: String,
    /// The Service through which the API server reaches it. `NAME.NAMESPACE.svc` is the name in its certificate, by
    /// which agents know it too, whatever address they dial.
    pub service: String,
    /// The service account of the agents, in the gateway's namespace: only its tokens open tunnels. Anyone who may
    /// create pods can have a token for the tunnel's audience, but not of this account.
    pub agent_account: String,
    /// Where users, and the API server for them, are answered.
    pub users: SocketAddr,
    /// Where agents are answered.
    pub agents: SocketAddr,
    /// More names and addresses in the certificate.
    pub names: Vec<String>,
    /// Whether the certificates' authority is written into the `APIService`.
    pub api_service: bool,
    /// How long certificates hold.
    pub certificates: CertificatesConfig,
    /// Where the other replicas answer agents and each other; none: those of the Service's `EndpointSlices`. Where
    /// they are named here, agents are told of none, for their configuration names them too.
    pub peers: Vec<SocketAddr>,
    /// How it ends.
    pub shutdown: ShutdownConfig,
    /// Identities of tasks.
    pub identities: IdentitiesConfig,
    /// Whether Nomad's HTTP API is served, from watches of all jobs, allocations, deployments, nodes and volumes;
    /// default true. Without it the gateway holds no objects.
    pub nomad: bool,
    /// Whether its clients may change objects too; default true. The gateway needs the rights of the `ClusterRole`
    /// drover-gateway-writes for it.
    pub nomad_writes: bool,
    /// The event stream of Nomad's HTTP API.
    pub events: EventsConfig,
    /// What the operator has set for the scheduler: the controller's, so that plans come out as it decides.
    pub scheduler: Settings,
    /// How often a stream's user is asked for again; at most 60 s.
    #[serde(deserialize_with = "duration")]
    pub recheck_every: Duration,
}

/// The event stream of Nomad's HTTP API.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EventsConfig {
    /// Whether there is one; default true.
    pub enabled: bool,
    /// How many commits are kept for subscribers, in memory; 0: 100. At most 10,000.
    pub buffer: i64,
}

impl Default for EventsConfig {
    fn default() -> Self {
        Self { enabled: true, buffer: 0 }
    }
}

/// Commits that are kept where nothing is asked for.
const DEFAULT_BUFFER: usize = 100;
/// The most commits that are kept.
const LARGEST_BUFFER: i64 = 10_000;

impl EventsConfig {
    /// How many commits are kept; none: there is no stream.
    pub(crate) fn kept(self) -> Option<usize> {
        let asked = usize::try_from(self.buffer).ok().filter(|most| *most > 0);
        self.enabled.then_some(asked.unwrap_or(DEFAULT_BUFFER))
    }
}

/// How long certificates hold. Each is renewed when a third of its time is left.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CertificatesConfig {
    /// The authority; default 5 years.
    #[serde(deserialize_with = "duration")]
    pub authority: Duration,
    /// The gateway's own; default 90 days.
    #[serde(deserialize_with = "duration")]
    pub leaf: Duration,
}

/// The tokens that say of tasks which they are.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct IdentitiesConfig {
    /// Who tokens say has made them: the URL below which others read `/.well-known/openid-configuration`. Empty: they
    /// name none.
    pub issuer: String,
    /// How long a key signs before another does; default 30 days.
    #[serde(deserialize_with = "duration")]
    pub key_life: Duration,
}

/// How a replica ends, in order.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ShutdownConfig {
    /// How long it still takes calls after it has ceased to be ready: others learn of it late. Default 5 s.
    #[serde(deserialize_with = "duration")]
    pub unready_for: Duration,
    /// How long what is under way then may go on. Default 60 s.
    #[serde(deserialize_with = "duration")]
    pub streams_for: Duration,
}

impl Default for ShutdownConfig {
    fn default() -> Self {
        Self { unready_for: Duration::from_secs(5), streams_for: Duration::from_mins(1) }
    }
}

/// The longest that each part of the end may take: an end that never comes is none.
const LONGEST_SHUTDOWN: Duration = Duration::from_hours(1);

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            namespace: drover_api::SYSTEM_NAMESPACE.to_owned(),
            service: "drover-gateway".to_owned(),
            agent_account: "drover-agent".to_owned(),
            users: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 8443)),
            agents: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 8444)),
            names: Vec::new(),
            api_service: true,
            peers: Vec::new(),
            shutdown: ShutdownConfig::default(),
            certificates: CertificatesConfig::default(),
            identities: IdentitiesConfig::default(),
            nomad: true,
            nomad_writes: true,
            events: EventsConfig::default(),
            scheduler: Settings::default(),
            recheck_every: LONGEST_RECHECK,
        }
    }
}

impl Default for IdentitiesConfig {
    fn default() -> Self {
        Self { issuer: String::new(), key_life: DAY * 30 }
    }
}

impl Default for CertificatesConfig {
    fn default() -> Self {
        Self { authority: DAY * 365 * 5, leaf: DAY * 90 }
    }
}

const DAY: Duration = Duration::from_hours(24);
/// CONVENTIONS, section 13: rights are asked for at most so long ago.
const LONGEST_RECHECK: Duration = Duration::from_mins(1);
/// Below it the clocks of two machines would matter.
const SHORTEST_LEAF: Duration = Duration::from_secs(30);

impl GatewayConfig {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// When it cannot be read, is no configuration, or a value is out of its range.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let config: Self = serde_saphyr::from_str(text)
            .map_err(|error| ConfigError::Parse { path: path.to_owned(), reason: error.to_string() })?;
        match config.check() {
            Ok(()) => Ok(config),
            Err((field, reason)) => Err(ConfigError::Invalid { path: path.to_owned(), field, reason }),
        }
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        for (field, name) in
            [("namespace", &self.namespace), ("service", &self.service), ("agentAccount", &self.agent_account)]
        {
            if !drover_api::names::is_dns_label(name) {
                return Err((
                    field,
                    format!("{name:?} is no name of an object: give lower case letters, digits and `-`"),
                ));
            }
        }
        if self.recheck_every.is_zero() || self.recheck_every > LONGEST_RECHECK {
            return Err(("recheckEvery", "must be above 0s and at most 1m".to_owned()));
        }
        if !(0..=LARGEST_BUFFER).contains(&self.events.buffer) {
            return Err(("events.buffer", format!("must be from 0 to {LARGEST_BUFFER}; 0 is the default")));
        }
        let IdentitiesConfig { issuer, key_life } = &self.identities;
        if !(issuer.is_empty() || issuer.starts_with("https://") || issuer.starts_with("http://")) {
            return Err(("identities.issuer", format!("{issuer:?} is no URL; write it as https://id.example.com")));
        }
        if *key_life < SHORTEST_LEAF {
            return Err(("identities.keyLife", "must be at least 30s".to_owned()));
        }
        let ShutdownConfig { unready_for, streams_for } = self.shutdown;
        for (field, span) in [("shutdown.unreadyFor", unready_for), ("shutdown.streamsFor", streams_for)] {
            if span > LONGEST_SHUTDOWN {
                return Err((field, "must be at most 1h".to_owned()));
            }
        }
        let CertificatesConfig { authority, leaf } = self.certificates;
        if leaf < SHORTEST_LEAF {
            return Err(("certificates.leaf", "must be at least 30s".to_owned()));
        }
        if authority < leaf * 2 {
            return Err(("certificates.authority", "must be at least twice certificates.leaf".to_owned()));
        }
        Ok(())
    }

    /// The name in the gateway's certificate.
    pub(crate) fn server_name(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }

    /// The user that agents are.
    pub(crate) fn agent_user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.agent_account)
    }
}

/// A duration as in manifests: `300ms`, `10s`, `1m30s`, `1h`.
fn duration<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let duration = GoDuration::deserialize(from)?;
    if duration.is_negative() {
        return Err(serde::de::Error::custom(format!("`{duration}` is negative: give a span of time that lies ahead")));
    }
    Ok(duration.to_std())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_has_the_defaults_and_mistakes_are_named() {
        let parse = |text: &str| GatewayConfig::parse(text, Path::new("gateway.yaml")).map_err(|it| it.to_string());
        let config = parse("{}").expect("a configuration");
        assert_eq!(config.server_name(), "drover-gateway.drover-system.svc");
        assert_eq!(config.agent_user(), "system:serviceaccount:drover-system:drover-agent");
        assert_eq!((config.users.port(), config.agents.port()), (8443, 8444));
        assert!(config.nomad && !parse("nomad: false").expect("a configuration").nomad);
        let kept = |text: &str| parse(text).expect("a configuration").events.kept();
        assert_eq!(
            (kept("{}"), kept("events: {buffer: 0}"), kept("events: {buffer: 7}")),
            (Some(100), Some(100), Some(7))
        );
        assert_eq!(kept("events: {enabled: false}"), None);
        for (text, named) in [
            ("portt: 1", "portt"),
            ("service: A_b", "service"),
            ("recheckEvery: 2m", "recheckEvery"),
            ("recheckEvery: 0s", "recheckEvery"),
            ("certificates: {leaf: 1s}", "certificates.leaf"),
            ("certificates: {leaf: 1m, authority: 1m}", "certificates.authority"),
            ("certificates: {leaf: -1m}", "negative"),
            ("identities: {issuer: id.example.com}", "identities.issuer"),
            ("identities: {keyLife: 1s}", "identities.keyLife"),
            ("events: {buffer: -1}", "events.buffer"),
            ("events: {buffer: 10001}", "events.buffer"),
            ("shutdown: {unreadyFor: 2h}", "shutdown.unreadyFor"),
            ("shutdown: {streamsFor: 2h}", "shutdown.streamsFor"),
            ("peers: [gateway]", "peers"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
