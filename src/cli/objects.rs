//! Objects of one kind in the cluster, by name: read, listed, changed and deleted, with errors for people.

use anyhow::bail;
use drover_api::field_manager;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::connect::Connection;
use super::trouble::{About, explain};

/// The objects of a kind that a command is about.
pub(super) struct Objects<K> {
    pub(super) api: Api<K>,
    /// Their namespace; none for all namespaces and for kinds of the whole cluster.
    pub(super) namespace: Option<String>,
}

impl Connection {
    /// The objects of the connection's namespace.
    pub(super) fn objects<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Objects<K> {
        let api = Api::namespaced(self.client.clone(), &self.namespace);
        Objects { api, namespace: Some(self.namespace.clone()) }
    }

    /// The objects of all namespaces, or of the connection's alone.
    pub(super) fn objects_of<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(
        &self,
        all_namespaces: bool,
    ) -> Objects<K> {
        if all_namespaces {
            return Objects { api: Api::all(self.client.clone()), namespace: None };
        }
        self.objects()
    }

    /// The objects of a kind that has no namespaces.
    pub(super) fn cluster_objects<K: Resource<DynamicType = (), Scope = ClusterResourceScope>>(&self) -> Objects<K> {
        Objects { api: Api::all(self.client.clone()), namespace: None }
    }
}

impl<K> Objects<K>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    /// Turns an error into one for people; `name` is empty for a list.
    pub(super) fn explain(&self, verb: &str, name: &str, error: kube::Error) -> anyhow::Error {
        explain::<K>(About { verb, namespace: self.namespace.as_deref(), name }, error)
    }

    /// The object of that very name.
    pub(super) async fn get(&self, name: &str) -> anyhow::Result<K> {
        self.api.get(name).await.map_err(|error| self.explain("read", name, error))
    }

    /// Those that the parameters select.
    pub(super) async fn list(&self, params: &ListParams) -> anyhow::Result<Vec<K>> {
        let listed = self.api.list(params).await.map_err(|error| self.explain("list", "", error))?;
        Ok(listed.items)
    }

    /// Changes an object's spec, unless somebody else changed the object since it was read.
    pub(super) async fn change(&self, verb: &str, found: &K, spec: &Value) -> anyhow::Result<K> {
        let name = name_of(found);
        let body = json!({ "metadata": { "resourceVersion": found.meta().resource_version }, "spec": spec });
        let params = PatchParams { field_manager: Some(field_manager::CLI.to_owned()), ..PatchParams::default() };
        let changed = self.api.patch(name, &params, &Patch::Merge(&body)).await;
        changed.map_err(|error| self.explain(verb, name, error))
    }

    /// Deletes this very object; one that is gone already is no error.
    pub(super) async fn delete(&self, found: &K) -> anyhow::Result<()> {
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
pub(super) fn named<'a, K: Resource>(objects: &'a [K], name: &str) -> Option<&'a K> {
    objects.iter().find(|one| name_of(*one) == name)
}

/// The only object whose name starts so.
///
/// # Errors
/// When several do.
pub(super) fn starting<'a, K: Resource<DynamicType = ()>>(
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
