//! The scheduler's configuration in a cluster: the `ConfigMap` `drover-config`, key `config.yaml`, taken over whenever
//! it changes.
//!
//! It has the form of the controller's file. What a process cannot change while it leads (its namespace, the leader
//! election) is read at the start only. A wrong one is refused with its field, in an Event on the `ConfigMap` and in
//! `drover-heartbeat`, and the old one stays.

use std::path::Path;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;

use drover_store::Key;
use drover_store::events::{Happening, Severity};

use crate::actions::Action;
use crate::cache::Observed;
use crate::config::ControllerConfig;
use crate::heartbeat_config::HEARTBEAT_CONFIG;
use crate::shared::Shared;

/// Name and key of the `ConfigMap`.
pub(crate) const SCHEDULER_CONFIG: (&str, &str) = ("drover-config", "config.yaml");

/// What the configuration in a cluster is compared with.
#[derive(Debug)]
pub(crate) struct ClusterConfig {
    /// What the process was started with.
    file: ControllerConfig,
}

/// Which parts of the configuration are others now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfigChange {
    /// Something was taken over.
    pub(crate) is_taken_over: bool,
    /// How nodes are chosen.
    pub(crate) scheduler: bool,
    /// How often garbage is looked for.
    pub(crate) garbage: bool,
}

impl ClusterConfig {
    /// The configuration of a process that was started with this one.
    pub(crate) const fn new(file: ControllerConfig) -> Self {
        Self { file }
    }

    /// Takes in what the cluster says.
    pub(crate) fn on_change(&self, shared: &mut Shared, seen: &Observed<ConfigMap>) -> ConfigChange {
        let (name, field) = SCHEDULER_CONFIG;
        let map = match seen {
            Observed::Now(map, _) if map.meta().name.as_deref() == Some(name) => Some(map),
            Observed::Gone(map) if map.meta().name.as_deref() == Some(name) => None,
            Observed::Now(..) | Observed::Gone(_) => return ConfigChange::default(),
        };
        let text = map.and_then(|map| map.data.as_ref()?.get(field));
        let read = text.map_or_else(
            || Ok(self.file.clone()),
            |text| ControllerConfig::parse(text, Path::new(&format!("{name}/{field}"))),
        );
        let outcome = match &read {
            Ok(_) if text.is_none() => "the controller's file is in effect".to_owned(),
            Ok(_) => format!("{name} is in effect"),
            Err(error) => format!("refused: {error}; the one before stays in effect"),
        };
        // A new leader takes over what was told before.
        if let Some(map) = map.filter(|_| shared.has_begun || read.is_err()) {
            let (severity, reason) = match &read {
                Ok(_) => (Severity::Normal, "ConfigApplied"),
                Err(_) => (Severity::Warning, "ConfigRefused"),
            };
            let occasion = map.meta().resource_version.clone().unwrap_or_default();
            let happening =
                Happening { severity, reason, action: "Configure", note: outcome.clone(), occasion: &occasion };
            shared.report(&**map, &happening);
        }
        let change = match read {
            Ok(config) => take_over(shared, config),
            Err(error) => {
                tracing::error!(%error, "the configuration in the cluster is refused; the old one stays");
                ConfigChange::default()
            }
        };
        let key = Key::namespaced(shared.config.namespace.clone(), HEARTBEAT_CONFIG.0);
        shared.outbox.push(Action::ConfigOutcome(key, outcome));
        change
    }
}

fn take_over(shared: &mut Shared, config: ControllerConfig) -> ConfigChange {
    let change = ConfigChange {
        is_taken_over: true,
        scheduler: shared.config.scheduler != config.scheduler,
        garbage: shared.config.gc.interval() != config.gc.interval(),
    };
    shared.config.scheduler = config.scheduler;
    shared.config.heartbeat = config.heartbeat;
    shared.config.gc = config.gc;
    tracing::info!("the configuration is in effect");
    change
}
