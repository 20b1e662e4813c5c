//! One object of the API server, as it is and as it changes: a list of one, and watches from there.
//!
//! kube's `watch_object` says the same. For each watch it holds a buffer of 8 KB and room for all that it may ever do;
//! where thousands of objects are followed one by one, that is most of the gateway's memory.

use std::convert::Infallible;
use std::fmt::Debug;
use std::time::Duration;

use drover_clock::Backoff;
use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use http::HeaderValue;
use http::header::ACCEPT_ENCODING;
use k8s_openapi::NamespaceResourceScope;
use kube::api::{ListParams, ObjectList, WatchEvent, WatchParams};
use kube::core::Request;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

/// The first pause after what failed, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(800), Duration::from_secs(30));
/// How long a watch lasts, in seconds: less than the five minutes after which others may take it for dead, and not the
/// same for all that began together.
const WATCH_SECONDS: std::ops::RangeInclusive<u32> = 200..=290;

/// An object to be followed, by its name.
pub(super) struct OneObject<'a> {
    pub(super) client: &'a Client,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

impl OneObject<'_> {
    /// Tells what it is, or that it is not there, now and at each change; and what failed, after which it goes on.
    pub(super) async fn follow<K>(&self, tell: impl Fn(kube::Result<Option<K>>)) -> Infallible
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let requests = Request::new(K::url_path(&(), Some(self.namespace)));
        let mut pauses = Backoff::new(PAUSE.0, PAUSE.1);
        // Up to which version of the API server's objects everything was told; none: it is to be listed.
        let mut told = None;
        loop {
            let began = Instant::now();
            let version = match told.take() {
                Some(version) => Ok(version),
                None => self.list(&requests, &tell).await,
            };
            let watched = match version {
                Ok(version) => self.watch(&requests, version, &tell).await,
                Err(error) => Err(error),
            };
            // A watch that ends at once is no success: where all do, they would be asked for without a pause.
            let lasted = began.elapsed() >= PAUSE.0;
            match watched {
                Ok(version) => told = Some(version),
                Err(error) => tell(Err(error)),
            }
            if told.is_some() && lasted {
                pauses.worked();
            } else {
                tokio::time::sleep(Backoff::spread(pauses.failed(), &mut fastrand::Rng::new())).await;
            }
        }
    }

    fn selector(&self) -> String {
        format!("metadata.name={}", self.name)
    }

    /// Tells what it is, and returns of which version of all objects that is.
    async fn list<K>(&self, requests: &Request, tell: &impl Fn(kube::Result<Option<K>>)) -> kube::Result<String>
    where
        K: Clone + DeserializeOwned,
    {
        let request =
            requests.list(&ListParams::default().fields(&self.selector())).map_err(kube::Error::BuildRequest)?;
        // What is held only while it is asked has memory of its own, which is free again during the watch.
        let mut list = Box::pin(self.client.request::<ObjectList<K>>(request)).await?;
        tell(Ok(list.items.pop()));
        Ok(list.metadata.resource_version.unwrap_or_default())
    }

    /// Tells each change after a version, until the API server ends the watch; returns the version of the last one.
    async fn watch<K>(
        &self,
        requests: &Request,
        mut version: String,
        tell: &impl Fn(kube::Result<Option<K>>),
    ) -> kube::Result<String>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned,
    {
        let params = WatchParams::default().fields(&self.selector()).timeout(fastrand::u32(WATCH_SECONDS));
        let mut request = requests.watch(&params, &version).map_err(kube::Error::BuildRequest)?;
        // As kube does: API servers from version 1.37 on compress each event by itself, which is not understood here.
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let mut lines = Box::pin(self.client.request_stream(request)).await?.lines();
        while let Some(line) = lines.try_next().await.map_err(kube::Error::ReadEvents)? {
            let of = |object: &K| object.meta().resource_version.clone().unwrap_or_default();
            version = match serde_json::from_str::<WatchEvent<K>>(&line).map_err(kube::Error::SerdeError)? {
                WatchEvent::Added(found) | WatchEvent::Modified(found) => {
                    let version = of(&found);
                    tell(Ok(Some(found)));
                    version
                }
                WatchEvent::Deleted(gone) => {
                    tell(Ok(None));
                    of(&gone)
                }
                WatchEvent::Bookmark(bookmark) => bookmark.metadata.resource_version,
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            };
        }
        Ok(version)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    use http::Response;
    use k8s_openapi::api::core::v1::Secret;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;

    fn secret(version: &str) -> Value {
        json!({ "metadata": { "name": "conf", "resourceVersion": version } })
    }

    fn event(kind: &str, object: &Value) -> String {
        json!({ "type": kind, "object": object }).to_string() + "\n"
    }

    /// What is told and asked of an API server that answers so, in turn, until it is asked once more.
    async fn said(answers: &[(u16, String)]) -> (Vec<String>, Vec<String>) {
        let answers: Arc<Mutex<VecDeque<_>>> = Arc::new(Mutex::new(answers.iter().cloned().collect()));
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (ended, is_ended) = tokio::sync::mpsc::unbounded_channel::<()>();
        let seen = Arc::clone(&asked);
        let service = service_fn(move |request: http::Request<Body>| {
            let of = |name: &str| {
                let query = request.uri().query().unwrap_or_default();
                query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).unwrap_or("-").to_owned()
            };
            assert_eq!(of("fieldSelector"), "metadata.name%3Dconf");
            seen.lock().expect("requests").push(format!("{} {}", of("watch"), of("resourceVersion")));
            let (answer, ended) = (answers.lock().expect("answers").pop_front(), ended.clone());
            async move {
                let Some((code, text)) = answer else {
                    ended.send(()).expect("a listener");
                    return std::future::pending().await;
                };
                Response::builder().status(code).body(Body::from(text.into_bytes()))
            }
        });
        let told: Mutex<Vec<String>> = Mutex::default();
        let client = Client::new(service, "default");
        let one = OneObject { client: &client, namespace: "shop", name: "conf" };
        let tell = |change: kube::Result<Option<Secret>>| {
            told.lock().expect("what is told").push(match change {
                Ok(Some(found)) => found.metadata.resource_version.expect("a version"),
                Ok(None) => "absent".to_owned(),
                Err(kube::Error::Api(status)) => format!("error {}", status.code),
                Err(error) => format!("{error}"),
            });
        };
        let mut is_ended = is_ended;
        tokio::select! {
            never = one.follow(tell) => match never {},
            ended = is_ended.recv() => ended.expect("an end"),
        }
        let asked = asked.lock().expect("requests").clone();
        (told.into_inner().expect("what is told"), asked)
    }

    fn list(items: &[Value]) -> (u16, String) {
        (200, json!({ "kind": "SecretList", "apiVersion": "v1", "metadata": { "resourceVersion": "10" }, "items": items }).to_string())
    }

    fn status(code: u16) -> Value {
        json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no", "reason": "x" })
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_goes_on_where_the_one_before_ended() {
        let bookmark = json!({ "kind": "Secret", "apiVersion": "v1", "metadata": { "resourceVersion": "15" } });
        let first = event("ADDED", &secret("11")) + &event("MODIFIED", &secret("12")) + &event("BOOKMARK", &bookmark);
        let answers = [list(&[]), (200, first), (200, String::new()), (200, event("DELETED", &secret("17")))];
        let (told, asked) = said(&answers).await;
        assert_eq!(told, ["absent", "11", "12", "absent"]);
        assert_eq!(asked, ["- -", "true 10", "true 15", "true 15", "true 17"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_is_told_and_all_is_listed_again() {
        let gone = event("MODIFIED", &secret("12")) + &event("ERROR", &status(410));
        let cut = event("ADDED", &secret("11")) + r#"{"type":"MODI"#;
        let answers = [
            (403, status(403).to_string()),
            list(&[secret("9")]),
            (200, gone),
            list(&[secret("13")]),
            (200, cut),
            list(&[]),
            (500, status(500).to_string()),
        ];
        let (told, asked) = said(&answers).await;
        assert_eq!(told[..6], ["error 403", "9", "12", "error 410", "13", "11"]);
        assert!(told[6].contains("EOF"), "{told:?}");
        assert_eq!(told[7..], ["absent", "error 500"]);
        assert_eq!(asked, ["- -", "- -", "true 10", "- -", "true 10", "- -", "true 10", "- -"]);
    }
}
