//! How the API server is reached, and clients for it.

use std::path::Path;

use anyhow::Context as _;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder, ConfigExt as _, DynBody};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::retry::RetryLayer;
use tower::util::BoxService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _};

use crate::dial::{PREPARING, tcp};
use crate::shared::{Shared, speaks_http2};

/// What sends a request and brings its answer.
pub type Sender = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// A client for the API server of a kubeconfig; without one of the pod's service account, or of what kubectl would use.
///
/// # Errors
/// When the file cannot be read, or no API server is configured.
pub async fn to(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    client(config(kubeconfig).await?)
}

/// How the API server is reached.
///
/// # Errors
/// When the file cannot be read, or no API server is configured.
pub async fn config(kubeconfig: Option<&Path>) -> anyhow::Result<Config> {
    Ok(match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).with_context(|| format!("reading kubeconfig {}", path.display()))?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("using kubeconfig {}", path.display()))?
        }
        None => Config::infer().await.context("finding the API server; give --kubeconfig")?,
    })
}

/// A client for the API server of a configuration.
///
/// # Errors
/// When the configuration cannot be used: a certificate that cannot be read, a proxy, a broken header.
pub fn client(config: Config) -> anyhow::Result<Client> {
    Ok(builder(config)?.build())
}

/// The same before it is built, for layers around it.
///
/// # Errors
/// As [`client`].
pub fn builder(config: Config) -> anyhow::Result<ClientBuilder<Sender>> {
    if config.proxy_url.is_some() {
        return without_proxy(config);
    }
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp()).context(PREPARING)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new()).build(connector);
    let http = http
        .map_response(|answer| answer.map(|body| Box::new(body.map_err(BoxError::from)) as Box<DynBody>))
        .map_err(BoxError::from);
    over(http, config)
}

/// The same for who asks for thousands of things at a time: requests share connections of HTTP/2. An API server that
/// speaks HTTP/1.1 alone is noticed now; one that cannot be reached now is taken to speak both.
///
/// # Errors
/// As [`client`].
pub async fn shared(config: Config) -> anyhow::Result<ClientBuilder<Sender>> {
    if config.proxy_url.is_some() {
        return without_proxy(config);
    }
    if !speaks_http2(&config).await? {
        tracing::warn!(url = %config.cluster_url, "the API server does not speak HTTP/2: each request has a connection");
        return builder(config);
    }
    over(Shared::new(&config)?, config)
}

/// Kube is built without support for proxies here, and its refusal names what is missing.
fn without_proxy(config: Config) -> anyhow::Result<ClientBuilder<Sender>> {
    ClientBuilder::try_from(config).context(PREPARING)
}

/// A client that sends its requests like this.
fn over<S>(http: S, config: Config) -> anyhow::Result<ClientBuilder<Sender>>
where
    S: Service<Request<Body>, Response = Response<Box<DynBody>>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send,
{
    let sender = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry())))
        .option_layer(config.auth_layer().context(PREPARING)?)
        .layer(config.extra_headers_layer().context(PREPARING)?)
        .service(http)
        .boxed();
    Ok(ClientBuilder::new(sender, config.default_namespace))
}
