//! Carries out what `authority` decides: one Secret, one `ConfigMap`, one `APIService`, and the certificate that is
//! served.

use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use drover_clock::SharedClock;
use drover_daemon::monitor::{GatewayMetrics, Health};
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watch_object};
use kube::{Api, Client};
use serde_json::json;

use super::authority::{Kept, Pair, Step, Wanted, ends_at, step};
use super::tls::Served;
use crate::config::GatewayConfig;

/// The Secret with the authority's key and the gateway's own.
const SECRET: &str = "drover-gateway-tls";
/// The `ConfigMap` with the authorities' certificates, for agents.
const PUBLISHED: &str = "drover-gateway-ca";
/// The aggregated API, through which the API server learns of them.
const API_SERVICE: &str = "v1alpha1.subresources.drover.dev";
/// What helps where namespaces wait for a gateway that is gone.
const REMEDY: &str = "where namespaces stay terminating, `kubectl delete apiservice v1alpha1.subresources.drover.dev`";
/// The part of the gateway's health that is its certificate.
pub(crate) const CERTIFICATE: &str = "certificate";
/// How long one look may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(15);
/// The pause after a look that failed.
const RETRY: Duration = Duration::from_secs(2);
/// How often everything is looked at, whatever is known: what others take away of the published comes back.
const LOOK_EVERY: Duration = Duration::from_mins(1);
/// Writes in one look; more would mean that two replicas undo each other.
const MOST_STEPS: usize = 8;

/// Keeps the certificates.
pub(crate) struct Keeper {
    client: Client,
    secrets: Api<Secret>,
    published: Api<ConfigMap>,
    wanted: Wanted,
    has_api_service: bool,
    served: Served,
    clock: SharedClock,
    health: Health,
    metrics: GatewayMetrics,
}

/// How the keeper is watched, and knows the time.
pub(crate) struct Watched {
    pub(crate) clock: SharedClock,
    pub(crate) health: Health,
    pub(crate) metrics: GatewayMetrics,
}

impl Keeper {
    /// Certificates as the configuration says.
    pub(crate) fn new(client: Client, config: &GatewayConfig, watched: Watched) -> Self {
        let Watched { clock, health, metrics } = watched;
        let mut names = vec![config.server_name()];
        names.extend(config.names.iter().cloned());
        Self {
            secrets: Api::namespaced(client.clone(), &config.namespace),
            published: Api::namespaced(client.clone(), &config.namespace),
            client,
            wanted: Wanted { authority_for: config.certificates.authority, leaf_for: config.certificates.leaf, names },
            has_api_service: config.api_service,
            served: Served::default(),
            clock,
            health,
            metrics,
        }
    }

    /// The certificate for the listeners.
    pub(crate) fn served(&self) -> Served {
        self.served.clone()
    }

    /// Keeps them until it is dropped.
    pub(crate) async fn run(self) {
        let mut changes = self.changes();
        loop {
            let next = match tokio::time::timeout(LOOK_TIMEOUT, self.look()).await {
                Ok(Ok(next)) => {
                    self.health.well(CERTIFICATE);
                    self.until(next).min(LOOK_EVERY)
                }
                Ok(Err(error)) => self.failed(&format!("{error:#}")),
                Err(_) => self.failed("the API server does not answer"),
            };
            tokio::select! {
                biased;
                Some(change) = changes.next() => {
                    if let Err(error) = change {
                        tracing::debug!(%error, "the watch of the certificates restarts");
                        tokio::time::sleep(RETRY).await;
                    }
                }
                () = tokio::time::sleep(next) => {}
            }
        }
    }

    /// Says when something may have to be brought to what it should be: the Secret has changed, or the `APIService`,
    /// which an installation or an upgrade makes again without the authorities.
    fn changes(&self) -> BoxStream<'static, watcher::Result<()>> {
        let of_secret = watch_object(self.secrets.clone(), SECRET).default_backoff().map_ok(drop);
        if !self.has_api_service {
            return of_secret.boxed();
        }
        let services: Api<APIService> = Api::all(self.client.clone());
        let of_service = watch_object(services, API_SERVICE).default_backoff().map_ok(drop);
        stream::select(of_secret, of_service).boxed()
    }

    /// What is served goes on being served: only one that has nothing to serve is not ready.
    fn failed(&self, reason: &str) -> Duration {
        tracing::warn!(reason, "the certificates could not be looked after");
        if self.served.is_empty() {
            self.health.ill(CERTIFICATE, reason);
        }
        RETRY
    }

    fn until(&self, at: Timestamp) -> Duration {
        Duration::try_from(at.duration_since(self.clock.now())).unwrap_or(Duration::ZERO)
    }

    /// Brings everything to what it should be; returns when to look again.
    async fn look(&self) -> anyhow::Result<Timestamp> {
        for _ in 0..MOST_STEPS {
            let found = self.secrets.get_opt(SECRET).await.context("reading the Secret of the certificates")?;
            let mut secret = found.with_context(|| format!("Secret {SECRET} is missing: the chart makes it"))?;
            let kept = kept(&secret);
            // One whose authority is gone is made again below.
            if let (Some(leaf), Some(authority)) = (&kept.leaf, &kept.authority) {
                self.served.replace(&leaf.certificate, &leaf.key, &kept.authorities())?;
                for (name, pair) in [("leaf", leaf), ("authority", authority)] {
                    self.metrics.certificate(name, ends_at(&pair.certificate).map(Timestamp::as_second));
                }
            }
            let published = self.published().await?;
            match step(&kept, &published, &self.wanted, self.clock.now())? {
                Step::Store(kept) => {
                    store(&mut secret, &kept);
                    match self.secrets.replace(SECRET, &PostParams::default(), &secret).await {
                        Ok(_) => tracing::info!("a certificate was made"),
                        // Another replica was first: what it made is as good.
                        Err(kube::Error::Api(status)) if status.code == 409 => {}
                        Err(error) => return Err(error).context("storing the certificates"),
                    }
                }
                Step::Publish(bundle) => self.publish(&bundle).await?,
                Step::Wait(until) => return Ok(until),
            }
        }
        anyhow::bail!("the certificates change faster than they can be looked at")
    }

    /// What both agents and the API server trust; nothing where they differ.
    async fn published(&self) -> anyhow::Result<String> {
        let map = self.published.get_opt(PUBLISHED).await.context("reading the published authorities")?;
        let map = map.with_context(|| format!("ConfigMap {PUBLISHED} is missing: the chart makes it"))?;
        let for_agents = map.data.unwrap_or_default().remove("ca.crt").unwrap_or_default();
        let Some(service) = self.api_service().await? else { return Ok(for_agents) };
        let for_api_server = service.spec.and_then(|spec| spec.ca_bundle).map(|bundle| bundle.0).unwrap_or_default();
        Ok(if for_api_server == for_agents.as_bytes() { for_agents } else { String::new() })
    }

    /// None: the gateway is not reached through the API server. Operators may take it away, so that namespaces can be
    /// deleted while no gateway runs.
    async fn api_service(&self) -> anyhow::Result<Option<APIService>> {
        if !self.has_api_service {
            return Ok(None);
        }
        let services: Api<APIService> = Api::all(self.client.clone());
        services.get_opt(API_SERVICE).await.context("reading the APIService")
    }

    async fn publish(&self, bundle: &str) -> anyhow::Result<()> {
        let params = PatchParams::default();
        let data = Patch::Merge(json!({ "data": { "ca.crt": bundle } }));
        self.published.patch(PUBLISHED, &params, &data).await.context("publishing the authority for agents")?;
        if self.api_service().await?.is_some() {
            let services: Api<APIService> = Api::all(self.client.clone());
            let spec = Patch::Merge(json!({ "spec": { "caBundle": BASE64.encode(bundle) } }));
            services.patch(API_SERVICE, &params, &spec).await.context("publishing the authority for the API server")?;
        }
        Ok(())
    }
}

/// Takes the aggregated API away when drover's own namespace is being deleted: an `APIService` without a gateway keeps
/// every namespace of the cluster from going, this one included. Without such a deletion nothing is done.
pub(crate) async fn withdraw(client: Client, config: &GatewayConfig) {
    if !config.api_service {
        return;
    }
    let withdrawn = async {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let own = namespaces.get_opt(&config.namespace).await?;
        if own.is_some_and(|own| own.metadata.deletion_timestamp.is_none()) {
            return Ok(false);
        }
        let services: Api<APIService> = Api::all(client);
        match services.delete(API_SERVICE, &DeleteParams::default()).await {
            Ok(_) => Ok(true),
            // The other replica was first.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(true),
            Err(error) => Err(error),
        }
    };
    match tokio::time::timeout(LOOK_TIMEOUT, withdrawn).await {
        Ok(Ok(false)) => {}
        Ok(Ok(true)) => tracing::info!("the APIService is deleted, for drover's namespace is"),
        Ok(Err(error)) => tracing::warn!(%error, "it is not known whether the APIService must go; {REMEDY}"),
        Err(_) => tracing::warn!("the API server does not say whether the APIService must go; {REMEDY}"),
    }
}

fn kept(secret: &Secret) -> Kept {
    let text = |name: &str| {
        let bytes = secret.data.as_ref()?.get(name)?;
        String::from_utf8(bytes.0.clone()).ok().filter(|text| !text.is_empty())
    };
    let pair = |certificate: &str, key: &str| Some(Pair { certificate: text(certificate)?, key: text(key)? });
    Kept { authority: pair("ca.crt", "ca.key"), earlier: text("earlier-ca.crt"), leaf: pair("tls.crt", "tls.key") }
}

fn store(secret: &mut Secret, kept: &Kept) {
    let data = secret.data.get_or_insert_default();
    let mut set = |name: &str, text: Option<&String>| {
        match text {
            Some(text) => data.insert(name.to_owned(), ByteString(text.clone().into_bytes())),
            None => data.remove(name),
        };
    };
    set("ca.crt", kept.authority.as_ref().map(|pair| &pair.certificate));
    set("ca.key", kept.authority.as_ref().map(|pair| &pair.key));
    set("earlier-ca.crt", kept.earlier.as_ref());
    set("tls.crt", kept.leaf.as_ref().map(|pair| &pair.certificate));
    set("tls.key", kept.leaf.as_ref().map(|pair| &pair.key));
}
