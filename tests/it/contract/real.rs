//! The script's calls to a real API server, over HTTP.

use std::time::Duration;

use drover_store::Part;
use drover_store::memory::Kind;
use drover_testkit::control_plane::{ControlPlane, User};
use futures::TryStreamExt;
use http::Request;
use kube::Client;
use kube::core::WatchEvent;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::script::{Call, LAST, NS};
use super::{Refused, Server};
use crate::agent::start_plane;

/// How long an event may take to come.
const DEADLINE: Duration = Duration::from_secs(30);

/// A kube-apiserver with its etcd.
pub(super) struct ApiServer {
    plane: ControlPlane,
    client: Client,
}

impl ApiServer {
    pub(super) async fn start() -> Self {
        let plane = start_plane("contract").await;
        let client = plane.client(User::Admin).await.expect("a client");
        Self { plane, client }
    }

    async fn send(&self, method: &str, path: &str, content: &str, body: &Value) -> Result<Value, Refused> {
        let request = Request::builder().method(method).uri(path).header("Content-Type", content);
        let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).expect("JSON") };
        let answer = self.client.request::<Value>(request.body(body).expect("a request")).await;
        answer.map_err(|error| refused(&error, path))
    }

    async fn list(&self, kind: &Kind, fields: &str, limit: usize, from: &str) -> Result<Value, Refused> {
        let path = format!("{}?fieldSelector={fields}&limit={limit}&continue={from}", collection(kind));
        let list = self.send("GET", &path, "application/json", &Value::Null).await?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let token = &list["metadata"]["continue"];
        let token = token.as_str().filter(|token| !token.is_empty());
        Ok(json!({ "items": items, "token": token, "remaining": list["metadata"]["remainingItemCount"] }))
    }

    /// Reads events until one ends it.
    async fn watch(&self, path: &str) -> Result<Value, Refused> {
        let request = Request::get(path).body(Vec::new()).expect("a request");
        let events = self.client.request_events::<Value>(request).await.map_err(|error| refused(&error, path))?;
        let mut events = std::pin::pin!(events);
        let mut seen = Vec::new();
        loop {
            let next = tokio::time::timeout(DEADLINE, events.try_next()).await;
            let next = next.unwrap_or_else(|_| panic!("{path}: no event came after {seen:?}"));
            match next.unwrap_or_else(|error| panic!("{path}: {error}")) {
                Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    let is_last = object["metadata"]["name"] == LAST && !path.contains("sendInitialEvents");
                    seen.push(json!({ "type": "put", "object": object }));
                    if is_last {
                        return Ok(json!({ "events": seen }));
                    }
                }
                Some(WatchEvent::Deleted(object)) => seen.push(json!({ "type": "gone", "object": object })),
                Some(WatchEvent::Bookmark(bookmark)) => {
                    return Ok(json!({ "events": seen, "bookmark": bookmark.metadata.resource_version }));
                }
                Some(WatchEvent::Error(status)) => return Err(Refused(status.reason.clone())),
                None => panic!("{path}: the watch ended after {seen:?}"),
            }
        }
    }

    /// Compacts etcd at the newest revision, as the API server does every five minutes.
    async fn compact(&self) {
        let version = self.send("GET", "/api/v1/namespaces", "application/json", &Value::Null).await.expect("a list");
        let revision = version["metadata"]["resourceVersion"].as_str().expect("a version");
        let body = json!({ "revision": revision, "physical": true }).to_string();
        let folder = std::fs::File::open(self.plane.data_dir()).expect("the data folder");
        // The path of a socket may have 107 bytes.
        let socket = format!("/proc/self/fd/{}/etcd.sock", std::os::fd::AsRawFd::as_raw_fd(&folder));
        let mut etcd = tokio::net::UnixStream::connect(socket).await.expect("etcd listens");
        let request = format!(
            "POST /v3/kv/compaction HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        etcd.write_all(request.as_bytes()).await.expect("a request");
        let mut answer = String::new();
        etcd.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

fn refused(error: &kube::Error, path: &str) -> Refused {
    match error {
        // It has no name for a create with a version.
        kube::Error::Api(status) if status.reason.is_empty() => Refused("BadRequest".to_owned()),
        kube::Error::Api(status) => Refused(status.reason.clone()),
        error => panic!("{path}: no answer: {error}"),
    }
}

fn kind(name: &str) -> &'static Kind {
    drover_store::memory::kind(name).expect("a kind of the simulator")
}

fn collection(kind: &Kind) -> String {
    let root = if kind.api_version.contains('/') { "apis" } else { "api" };
    let namespace = if kind.is_namespaced { format!("/namespaces/{NS}") } else { String::new() };
    format!("/{root}/{}{namespace}/{}", kind.api_version, kind.plural)
}

fn object(kind_name: &str, name: &str, part: Part) -> String {
    let status = if part == Part::Status { "/status" } else { "" };
    format!("{}/{name}{status}", collection(kind(kind_name)))
}

impl Server for ApiServer {
    async fn call(&mut self, call: &Call) -> Result<Value, Refused> {
        let plain = "application/json";
        match call {
            Call::Create { kind: of, body } => {
                self.send("POST", &format!("{}?fieldManager=t", collection(kind(of))), plain, body).await
            }
            Call::Replace { kind: of, change, .. } => {
                let name = change["metadata"]["name"].as_str().expect("a name");
                self.send("PUT", &format!("{}?fieldManager=t", object(of, name, Part::Spec)), plain, change).await
            }
            Call::Merge { kind, name, part, body } => {
                let path = format!("{}?fieldManager=t", object(kind, name, *part));
                self.send("PATCH", &path, "application/merge-patch+json", body).await
            }
            Call::Apply { kind: of, name, part, manager, is_forced, body } => {
                let mut body = body.clone();
                body["apiVersion"] = json!(kind(of).api_version);
                body["kind"] = json!(of);
                body["metadata"]["name"] = json!(name);
                let path = format!("{}?fieldManager={manager}&force={is_forced}", object(of, name, *part));
                self.send("PATCH", &path, "application/apply-patch+yaml", &body).await
            }
            Call::Delete { kind, name, precondition } => {
                let options = json!({
                    "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
                    "preconditions": precondition,
                });
                self.send("DELETE", &object(kind, name, Part::Spec), plain, &options).await.map(|_| json!({}))
            }
            Call::Get { kind, name } => self.send("GET", &object(kind, name, Part::Spec), plain, &Value::Null).await,
            Call::List { kind: of, fields, limit, from } => {
                self.list(kind(of), fields, *limit, from.as_str().expect("a token")).await
            }
            Call::Watch { kind: of, fields, after } => {
                let after = after.as_str().expect("a version");
                let path = collection(kind(of));
                self.watch(&format!("{path}?watch=true&fieldSelector={fields}&resourceVersion={after}")).await
            }
            Call::WatchInitial { kind: of, fields } => {
                let path = collection(kind(of));
                let how = "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
                self.watch(&format!("{path}?watch=true&fieldSelector={fields}&{how}")).await
            }
            Call::Compact => {
                self.compact().await;
                Ok(json!({}))
            }
        }
    }
}
