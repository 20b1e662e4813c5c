//! Objects of one kind in the cluster, by name: read, listed, changed and deleted, with errors for people.

use anyhow::bail;
use drover_api::{field_manager, finalizer};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Api, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster::api_errors::{About, explain, no_namespace};
use crate::cluster::connect::Connection;

/// How often a change is written when each time a status was written before it; client-go's `retry.DefaultRetry` has 5
/// too.
pub(crate) const CHANGE_TRIES: u32 = 5;

/// The objects of a kind that a command is about.
pub(crate) struct Objects<K> {
    pub(crate) api: Api<K>,
    /// Their namespace; none for all namespaces and for kinds of the whole cluster.
    pub(crate) namespace: Option<String>,
}

impl Connection {
    /// The objects of the connection's namespace.
    pub(crate) fn objects<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Objects<K> {
        self.objects_in(&self.namespace)
    }

    /// The objects of this namespace.
    pub(crate) fn objects_in<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(
        &self,
        namespace: &str,
    ) -> Objects<K> {
        Objects { api: Api::namespaced(self.client.clone(), namespace), namespace: Some(namespace.to_owned()) }
    }

    /// The objects of all namespaces, or of the connection's alone.
    pub(crate) fn objects_of<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(
        &self,
        all_namespaces: bool,
    ) -> Objects<K> {
        if all_namespaces {
            return Objects { api: Api::all(self.client.clone()), namespace: None };
        }
        self.objects()
    }

    /// The objects of a kind that has no namespaces.
    pub(crate) fn cluster_objects<K: Resource<DynamicType = (), Scope = ClusterResourceScope>>(&self) -> Objects<K> {
        Objects { api: Api::all(self.client.clone()), namespace: None }
    }
}

impl<K> Objects<K>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    /// Turns an error into one for people; `name` is empty for a list.
    pub(crate) fn explain(&self, verb: &str, name: &str, error: kube::Error) -> anyhow::Error {
        explain::<K>(About { verb, namespace: self.namespace.as_deref(), name }, error)
    }

    /// The object of that very name.
    pub(crate) async fn get(&self, name: &str) -> anyhow::Result<K> {
        let error = match self.api.get(name).await {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        if matches!(&error, kube::Error::Api(status) if status.code == 404) {
            self.check_namespace().await?;
        }
        Err(self.explain("read", name, error))
    }

    /// Says so where the namespace is missing, of which a read says only that it has no such object. A user who may not
    /// read namespaces learns no more than that.
    pub(crate) async fn check_namespace(&self) -> anyhow::Result<()> {
        let Some(name) = &self.namespace else { return Ok(()) };
        let namespaces: Api<Namespace> = Api::all(self.api.clone().into_client());
        if let Ok(None) = namespaces.get_metadata_opt(name).await {
            bail!("{}", no_namespace(name));
        }
        Ok(())
    }

    /// Those that the parameters select.
    pub(crate) async fn list(&self, params: &ListParams) -> anyhow::Result<Vec<K>> {
        let listed = self.api.list(params).await.map_err(|error| self.explain("list", "", error))?;
        Ok(listed.items)
    }

    /// Changes an object's spec, unless another writer changed that spec since it was read.
    pub(crate) async fn change(&self, verb: &str, found: &K, spec: &Value) -> anyhow::Result<K> {
        let is_same =
            |now: &K| (&now.meta().uid, now.meta().generation) == (&found.meta().uid, found.meta().generation);
        let body =
            |now: &K| Ok(json!({ "metadata": { "resourceVersion": now.meta().resource_version }, "spec": spec }));
        self.write(verb, found.clone(), is_same, body).await
    }

    /// Writes to an annotation what is requested, as it follows from what stands there.
    pub(crate) async fn annotate(
        &self,
        verb: &str,
        found: K,
        name: &str,
        request: impl Fn(Option<&str>) -> anyhow::Result<String>,
    ) -> anyhow::Result<K> {
        let uid = found.meta().uid.clone();
        let body = |now: &K| {
            let value = request(now.annotations().get(name).map(String::as_str))?;
            let version = &now.meta().resource_version;
            Ok(json!({ "metadata": { "uid": uid, "resourceVersion": version, "annotations": { name: value } } }))
        };
        self.write(verb, found, |_| true, body).await
    }

    /// Writes what follows from an object as it was read, for as long as that is still to be done to what it is now.
    ///
    /// drover itself writes the status all the time, which makes the API server refuse what was read a moment before. A
    /// status is no one's request, so such an object is read again and written again.
    async fn write(
        &self,
        verb: &str,
        found: K,
        is_to_be_done: impl Fn(&K) -> bool,
        body: impl Fn(&K) -> anyhow::Result<Value>,
    ) -> anyhow::Result<K> {
        let name = found.name_any();
        let params = PatchParams { field_manager: Some(field_manager::CLI.to_owned()), ..PatchParams::default() };
        let (mut now, mut tries_left) = (found, CHANGE_TRIES);
        loop {
            let error = match self.api.patch(&name, &params, &Patch::Merge(&body(&now)?)).await {
                Ok(written) => return Ok(written),
                Err(error) => error,
            };
            tries_left -= 1;
            if !matches!(&error, kube::Error::Api(status) if status.code == 409) || tries_left == 0 {
                return Err(self.explain(verb, &name, error));
            }
            now = self.get(&name).await?;
            if !is_to_be_done(&now) {
                return Err(self.explain(verb, &name, error));
            }
        }
    }

    /// Takes a finalizer off this very object, whatever is written to it meanwhile; one that is gone already is no
    /// error.
    pub(crate) async fn release(&self, found: &K, held_by: &str) -> anyhow::Result<()> {
        let name = name_of(found);
        let params = PatchParams { field_manager: Some(field_manager::CLI.to_owned()), ..PatchParams::default() };
        let mut now = found.meta().clone();
        let mut tries_left = CHANGE_TRIES;
        while now.uid == found.meta().uid && finalizer::is_held(&now, held_by) {
            let rest = finalizer::without(&now, held_by);
            let body = json!({ "metadata": { "resourceVersion": now.resource_version, "finalizers": rest } });
            let Err(error) = self.api.patch_metadata(name, &params, &Patch::Merge(&body)).await else {
                return Ok(());
            };
            tries_left -= 1;
            let code = if let kube::Error::Api(status) = &error { status.code } else { 0 };
            if code == 404 {
                return Ok(());
            }
            if code != 409 || tries_left == 0 {
                return Err(self.explain("free", name, error));
            }
            let read = self.api.get_metadata_opt(name).await.map_err(|error| self.explain("read", name, error))?;
            let Some(read) = read else { return Ok(()) };
            now = read.metadata;
        }
        Ok(())
    }

    /// Deletes this very object; one that is gone already is no error.
    pub(crate) async fn delete(&self, found: &K) -> anyhow::Result<()> {
        let preconditions = Preconditions { uid: found.meta().uid.clone(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.api.delete(name_of(found), &params).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(self.explain("delete", name_of(found), error)),
            Ok(_) => Ok(()),
        }
    }
}

/// The object of that name.
pub(crate) fn named<'a, K: Resource>(objects: &'a [K], name: &str) -> Option<&'a K> {
    objects.iter().find(|one| name_of(*one) == name)
}

/// The only object whose name starts so.
///
/// # Errors
/// When several do.
pub(crate) fn starting<'a, K: Resource<DynamicType = ()>>(
    objects: &'a [K],
    start: &str,
) -> anyhow::Result<Option<&'a K>> {
    let matching: Vec<&K> = objects.iter().filter(|one| name_of(*one).starts_with(start)).collect();
    if matching.len() > 1 {
        let names: Vec<&str> = matching.iter().map(|one| name_of(*one)).collect();
        bail!("{start} is the start of several {}: {}; write more of the name", K::plural(&()), names.join(", "));
    }
    Ok(matching.first().copied())
}

fn name_of<K: Resource>(object: &K) -> &str {
    object.meta().name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    use drover_api::Deployment;
    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    /// Deployments of an API server that gives these answers, each to one request, and the requests it was sent.
    fn answering(answers: Vec<(u16, Value)>) -> (Objects<Deployment>, Arc<Mutex<Vec<String>>>) {
        let (left, asked) = (Arc::new(Mutex::new(VecDeque::from(answers))), Arc::new(Mutex::new(Vec::new())));
        let seen = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (left, seen) = (left.clone(), seen.clone());
            async move {
                let method = request.method().clone();
                let sent = String::from_utf8(request.into_body().collect_bytes().await?.to_vec()).expect("text");
                seen.lock().expect("requests").push(format!("{method} {sent}"));
                let (code, body) = left.lock().expect("answers").pop_front().expect("an answer that is left");
                let body = Body::from(body.to_string().into_bytes());
                anyhow::Ok(Response::builder().status(code).body(body).expect("an answer"))
            }
        });
        let api = Api::namespaced(kube::Client::new(service, "default"), "default");
        (Objects { api, namespace: Some("default".to_owned()) }, asked)
    }

    fn stored(uid: &str, generation: i64, version: &str) -> Value {
        json!({
            "apiVersion": "drover.example.com/v1alpha1", "kind": "Deployment",
            "metadata": { "name": "web", "uid": uid, "generation": generation, "resourceVersion": version },
            "spec": { "jobName": "web", "jobUID": "j", "jobVersion": 0, "jobGeneration": 1 },
        })
    }

    fn conflict() -> (u16, Value) {
        (409, json!({ "kind": "Status", "status": "Failure", "reason": "Conflict", "message": "changed", "code": 409 }))
    }

    /// What becomes of a pause of `web` at version 1, generation 1, when these are the answers.
    async fn pause(answers: Vec<(u16, Value)>) -> (Result<String, String>, Vec<String>) {
        let (objects, asked) = answering(answers);
        let found = serde_json::from_value(stored("u", 1, "1")).expect("a deployment");
        let done = objects.change("pause", &found, &json!({ "paused": true })).await;
        let done = done.map(|one| one.metadata.resource_version.unwrap_or_default()).map_err(|error| error.to_string());
        let asked = asked.lock().expect("requests").clone();
        (done, asked)
    }

    #[tokio::test]
    async fn a_status_written_meanwhile_does_not_refuse_a_change() {
        let (done, asked) = pause(vec![conflict(), (200, stored("u", 1, "2")), (200, stored("u", 2, "3"))]).await;
        assert_eq!(done, Ok("3".to_owned()));
        assert_eq!(
            asked,
            [
                r#"PATCH {"metadata":{"resourceVersion":"1"},"spec":{"paused":true}}"#,
                "GET ",
                r#"PATCH {"metadata":{"resourceVersion":"2"},"spec":{"paused":true}}"#,
            ]
        );
    }

    #[tokio::test]
    async fn a_spec_written_meanwhile_or_another_object_of_that_name_refuses_a_change() {
        for now in [stored("u", 2, "2"), stored("other", 1, "2")] {
            let (done, asked) = pause(vec![conflict(), (200, now)]).await;
            assert!(done.is_err_and(|error| error.contains("another writer changed it meanwhile")));
            assert_eq!(asked.len(), 2);
        }
    }

    /// A deployment that this finalizer of ours and one of somebody else's hold.
    fn held(uid: &str, version: &str) -> Value {
        let mut one = stored(uid, 1, version);
        one["metadata"]["finalizers"] = json!(["drover.example.com/ours", "example.org/theirs"]);
        one
    }

    /// What becomes of a release of `web` when these are the answers.
    async fn release(answers: Vec<(u16, Value)>) -> (Result<(), String>, Vec<String>) {
        let (objects, asked) = answering(answers);
        let found = serde_json::from_value(held("u", "1")).expect("a deployment");
        let done = objects.release(&found, "drover.example.com/ours").await.map_err(|error| error.to_string());
        let asked = asked.lock().expect("requests").clone();
        (done, asked)
    }

    #[tokio::test]
    async fn a_release_leaves_finalizers_of_others_and_survives_a_status_written_meanwhile() {
        let (done, asked) = release(vec![conflict(), (200, held("u", "2")), (200, stored("u", 1, "3"))]).await;
        assert_eq!(done, Ok(()));
        assert_eq!(
            asked,
            [
                r#"PATCH {"metadata":{"resourceVersion":"1","finalizers":["example.org/theirs"]}}"#,
                "GET ",
                r#"PATCH {"metadata":{"resourceVersion":"2","finalizers":["example.org/theirs"]}}"#,
            ]
        );
    }

    #[tokio::test]
    async fn what_is_gone_or_free_or_another_object_meanwhile_needs_no_release() {
        let gone = json!({ "kind": "Status", "status": "Failure", "reason": "NotFound", "message": "", "code": 404 });
        for now in [(200, stored("u", 1, "2")), (200, held("other", "2")), (404, gone.clone())] {
            assert_eq!(release(vec![conflict(), now]).await.0, Ok(()));
        }
        assert_eq!(release(vec![(404, gone)]).await.0, Ok(()));
    }

    #[tokio::test]
    async fn a_change_gives_up_when_a_status_is_always_faster() {
        let mut answers = vec![conflict()];
        for _ in 1..CHANGE_TRIES {
            answers.extend([(200, stored("u", 1, "2")), conflict()]);
        }
        assert!(pause(answers).await.0.is_err_and(|error| error.contains("another writer changed it meanwhile")));
    }
}
