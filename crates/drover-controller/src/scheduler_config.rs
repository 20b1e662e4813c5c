//! The scheduler's configuration in a cluster: the `ConfigMap` `drover-config`, key `config.yaml`, taken over whenever it changes.
//!
//! It has the form of the controller's file. What a process cannot change while it leads (its namespace, the leader election) is
//! read at the start only. A wrong one is refused with its field, in an Event on the `ConfigMap` and in `drover-heartbeat`, and the
//! old one stays.

use std::path::Path;

use drover_api::job::EvalTrigger;
use drover_core::ids::JobKey;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;
use serde_json::json;

use crate::cache::Seen;
use crate::config::ControllerConfig;
use crate::node::HEARTBEAT_CONFIG;
use crate::term::{Done, Term};
use drover_store::events::{Happening, Severity};
use drover_store::{Key, Part, Precondition, Store, StoreError};

/// Name and key of the `ConfigMap`.
pub(super) const SCHEDULER_CONFIG: (&str, &str) = ("drover-config", "config.yaml");
/// The key of `drover-heartbeat` that says what became of it.
const OUTCOME: &str = "config";

impl<S: Store> Term<S> {
    pub(super) fn on_config(&mut self, seen: &Seen<ConfigMap>) {
        let (name, field) = SCHEDULER_CONFIG;
        let map = match seen {
            Seen::Now(map, _) if map.meta().name.as_deref() == Some(name) => Some(map),
            Seen::Gone(map) if map.meta().name.as_deref() == Some(name) => None,
            Seen::Now(..) | Seen::Gone(_) => return,
        };
        let text = map.and_then(|map| map.data.as_ref()?.get(field));
        let read = text.map_or_else(
            || Ok(self.file_config.clone()),
            |text| ControllerConfig::parse(text, Path::new(&format!("{name}/{field}"))),
        );
        let outcome = match &read {
            Ok(_) if text.is_none() => "the controller's file is in effect".to_owned(),
            Ok(_) => format!("{name} is in effect"),
            Err(error) => format!("refused: {error}; the one before stays in effect"),
        };
        // A new leader takes over what was told before.
        if let Some(map) = map.filter(|_| self.has_begun() || read.is_err()) {
            let (severity, reason) = match &read {
                Ok(_) => (Severity::Normal, "ConfigApplied"),
                Err(_) => (Severity::Warning, "ConfigRefused"),
            };
            let occasion = map.meta().resource_version.clone().unwrap_or_default();
            let happening =
                Happening { severity, reason, action: "Configure", note: outcome.clone(), occasion: &occasion };
            self.report(&**map, &happening);
        }
        match read {
            Ok(config) => self.take_over(config),
            Err(error) => tracing::error!(%error, "the configuration in the cluster is refused; the old one stays"),
        }
        self.publish_outcome(outcome);
    }

    fn take_over(&mut self, config: ControllerConfig) {
        let is_other = self.config.scheduler != config.scheduler;
        let has_other_gc = self.config.gc.interval() != config.gc.interval();
        self.config.scheduler = config.scheduler;
        self.config.heartbeat = config.heartbeat;
        self.config.gc = config.gc;
        tracing::info!("the configuration is in effect");
        if !self.has_begun() {
            return;
        }
        self.publish_ttl();
        if has_other_gc {
            self.plan_garbage();
        }
        if is_other {
            self.view.set_settings(self.config.scheduler.clone());
            // What waited for room may find some by the new rules.
            let waiting: Vec<JobKey> =
                self.known.iter().filter(|(_, known)| known.blocked.is_some()).map(|(job, _)| job.clone()).collect();
            for job in waiting {
                self.enqueue(&job, EvalTrigger::QueuedAllocs);
            }
        }
    }

    /// Says in the published `ConfigMap` what became of the configuration.
    fn publish_outcome(&mut self, outcome: String) {
        let (store, key) = (self.store.clone(), Key::namespaced(self.config.namespace.clone(), HEARTBEAT_CONFIG.0));
        self.writes.spawn(async move {
            let result = write_outcome(store, &key, outcome).await;
            Done::Other("outcome of the configuration", result)
        });
    }
}

async fn write_outcome<S: Store>(store: S, key: &Key, outcome: String) -> Result<(), StoreError> {
    let known = store.get::<ConfigMap>(key).await?;
    if known.as_ref().and_then(|map| map.data.as_ref()?.get(OUTCOME)) == Some(&outcome) {
        return Ok(());
    }
    let body = json!({ "data": { OUTCOME: outcome } });
    if known.is_none() {
        let data = [(OUTCOME.to_owned(), outcome)].into();
        let mut map = ConfigMap { data: Some(data), ..ConfigMap::default() };
        map.metadata.name = Some(key.name.clone());
        map.metadata.namespace.clone_from(&key.namespace);
        match store.create(&map).await {
            Err(StoreError::AlreadyExists(_)) => {}
            other => return other.map(|_| ()),
        }
    }
    store.merge::<ConfigMap>(key, Part::Spec, &Precondition::default(), body).await.map(|_| ())
}
