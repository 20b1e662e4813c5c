//! Counts what is asked of the API server, below everything that asks.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request, Response, Uri};
use kube::{Client, Config};
use tower::{Layer, Service};

use super::Metrics;
use super::metrics::{RequestLabels, WatchBegin};

/// A client that counts its requests.
///
/// # Errors
/// When the configuration cannot be used.
pub fn counting_client(config: Config, metrics: &Metrics) -> anyhow::Result<Client> {
    Ok(drover_connect::builder(config)?.with_layer(&CountRequests::new(metrics.clone())).build())
}

/// Puts the counting below a client.
#[derive(Clone, Debug)]
pub struct CountRequests {
    metrics: Metrics,
    /// The watches that were begun, by what they watch.
    watched: Arc<Mutex<BTreeSet<String>>>,
}

impl CountRequests {
    /// Counts into these metrics.
    pub fn new(metrics: Metrics) -> Self {
        Self { metrics, watched: Arc::default() }
    }
}

impl<S> Layer<S> for CountRequests {
    type Service = Counting<S>;

    fn layer(&self, inner: S) -> Counting<S> {
        Counting { inner, count: self.clone() }
    }
}

/// A client's way to the API server that counts.
#[derive(Clone, Debug)]
pub struct Counting<S> {
    inner: S,
    count: CountRequests,
}

impl<S, In, Out> Service<Request<In>> for Counting<S>
where
    S: Service<Request<In>, Response = Response<Out>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        let (verb, kind) = name(request.method(), request.uri());
        if verb == "watch" {
            let key = watch_key(request.uri());
            let is_new = self.count.watched.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
            self.count.metrics.watch_begun(&kind, if is_new { WatchBegin::First } else { WatchBegin::Again });
        }
        let metrics = self.count.metrics.clone();
        let sent = self.inner.call(request);
        async move {
            let answer = sent.await;
            let code =
                answer.as_ref().map_or_else(|_| "error".to_owned(), |answer| answer.status().as_str().to_owned());
            metrics.api.kube_requests.get_or_create(&RequestLabels { verb: verb.to_owned(), kind, code }).inc();
            answer
        }
        .boxed()
    }
}

/// What one watch is about, whatever it begins at.
fn watch_key(uri: &Uri) -> String {
    let query = uri.query().unwrap_or_default();
    let fields =
        query.split('&').filter(|part| part.starts_with("fieldSelector=") || part.starts_with("labelSelector="));
    fields.fold(uri.path().to_owned(), |key, part| key + "?" + part)
}

/// Verb and resource, as RBAC names them: both from small sets, never a name.
fn name(method: &Method, uri: &Uri) -> (&'static str, String) {
    let parts: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
    let rest = match parts.as_slice() {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
        _ => &[],
    };
    let rest = match rest {
        // `namespaces/x` alone is about the namespace itself.
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        rest => rest,
    };
    let (kind, is_named) = match rest {
        [] => return (plain_verb(method), "other".to_owned()),
        [plural] => ((*plural).to_owned(), false),
        [plural, _] => ((*plural).to_owned(), true),
        [plural, _, sub, ..] => (format!("{plural}/{sub}"), true),
    };
    let is_watch =
        uri.query().is_some_and(|query| query.split('&').any(|part| part == "watch=true" || part == "watch=1"));
    let verb = match (plain_verb(method), is_named) {
        ("get", _) if is_watch => "watch",
        ("get", false) => "list",
        ("delete", false) => "deletecollection",
        (verb, _) => verb,
    };
    (verb, kind)
}

fn plain_verb(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_named_as_rbac_names_them_and_never_by_an_object() {
        for (method, uri, verb, kind) in [
            (Method::GET, "/apis/drover.dev/v1alpha1/allocations?watch=true&resourceVersion=1", "watch", "allocations"),
            (Method::GET, "/apis/drover.dev/v1alpha1/namespaces/shop/jobs/web", "get", "jobs"),
            (Method::GET, "/apis/drover.dev/v1alpha1/jobs?limit=500", "list", "jobs"),
            (
                Method::PATCH,
                "/apis/drover.dev/v1alpha1/namespaces/shop/allocations/a/status",
                "patch",
                "allocations/status",
            ),
            (Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/d/leases/l", "update", "leases"),
            (
                Method::DELETE,
                "/apis/drover.dev/v1alpha1/namespaces/shop/allocations",
                "deletecollection",
                "allocations",
            ),
            (Method::GET, "/api/v1/namespaces/shop", "get", "namespaces"),
            (Method::GET, "/version", "get", "other"),
        ] {
            let uri: Uri = uri.parse().expect("a path");
            assert_eq!(name(&method, &uri), (verb, kind.to_owned()), "{uri}");
        }
    }

    #[tokio::test]
    async fn answers_and_broken_connections_are_counted_and_a_second_watch_of_the_same_is_a_restart() {
        let metrics = Metrics::default();
        let layer = CountRequests::new(metrics.clone());
        let mut service = layer.layer(tower::service_fn(async |request: Request<()>| {
            if request.uri().path() == "/version" {
                return Err(std::io::Error::other("gone"));
            }
            Ok(Response::new(()))
        }));
        for uri in [
            "/api/v1/nodes/n-1",
            "/version",
            "/api/v1/nodes?watch=true&resourceVersion=1",
            "/api/v1/nodes?watch=true&resourceVersion=7",
        ] {
            let request = Request::builder().uri(uri).body(()).expect("a request");
            service.call(request).await.ok();
        }
        let text = metrics.text();
        for line in [
            r#"drover_kube_requests_total{verb="get",kind="nodes",code="200"} 1"#,
            r#"drover_kube_requests_total{verb="get",kind="other",code="error"} 1"#,
            r#"drover_kube_requests_total{verb="watch",kind="nodes",code="200"} 2"#,
            r#"drover_watch_restarts_total{kind="nodes"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
