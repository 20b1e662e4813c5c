//! Applies manifests to an API server as `kubectl apply --server-side` would.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, TypeMeta};
use kube::discovery::{Scope, pinned_kind};
use tokio::time::Instant;

use crate::workspace;

/// Under whose name we apply.
const FIELD_MANAGER: &str = "drover-xtask";
/// How long the API server may take until it serves a new kind.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the folder of the custom resource definitions.
pub fn crds_folder() -> PathBuf {
    workspace::root().join("crds")
}

/// An object that was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Its API type.
    pub resource: ApiResource,
    /// Its namespace; none for objects of the whole cluster.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// Reads all documents of a YAML file. Those that hold nothing but comments are left out.
///
/// # Errors
/// When the text is no YAML, or a document is no Kubernetes object.
pub fn parse(text: &str) -> Result<Vec<DynamicObject>> {
    // Our own files: the default limits against hostile input are below the size of a CRD.
    let options = serde_saphyr::options! { budget: None };
    let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple_with_options(text, options)?;
    let objects = documents.into_iter().filter(|document| !document.is_null());
    objects.map(|document| serde_json::from_value(document).context("not a Kubernetes object")).collect()
}

/// Reads all documents of a file.
///
/// # Errors
/// When the file cannot be read or is not as [`parse`] wants it.
pub fn read(path: &Path) -> Result<Vec<DynamicObject>> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    parse(&text).with_context(|| format!("in {}", path.display()))
}

/// Returns the `.yaml` files of a folder by name.
///
/// # Errors
/// When the folder cannot be read or holds none.
pub fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading the folder {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("reading the folder {}", folder.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        bail!("no .yaml file in {}", folder.display());
    }
    Ok(files)
}

/// Applies an object; one without a namespace goes to `namespace` if its kind has namespaces.
///
/// # Errors
/// When the API server does not know the kind or refuses the object; the error is the server's own.
pub async fn apply(client: &kube::Client, object: &DynamicObject, namespace: &str) -> Result<Applied> {
    let name = object.metadata.name.clone().context("an object without metadata.name")?;
    let types = object.types.clone().context("an object without apiVersion and kind")?;
    let kind = types.kind.clone();
    let apply = async {
        let (resource, scope) = resource_of(client, &types).await?;
        let namespace = (scope == Scope::Namespaced)
            .then(|| object.metadata.namespace.clone().unwrap_or_else(|| namespace.to_owned()));
        let api: Api<DynamicObject> = match &namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        api.patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(object)).await?;
        Ok::<_, anyhow::Error>(Applied { resource, namespace, name: name.clone() })
    };
    apply.await.with_context(|| format!("applying {kind} {name}"))
}

async fn resource_of(client: &kube::Client, types: &TypeMeta) -> Result<(ApiResource, Scope)> {
    let kind = GroupVersionKind::try_from(types)?;
    let (resource, capabilities) =
        pinned_kind(client, &kind).await.with_context(|| format!("looking up {} {}", types.api_version, types.kind))?;
    Ok((resource, capabilities.scope))
}

/// Applies the custom resource definitions of a folder and waits until the API server serves them.
///
/// # Errors
/// When one is refused or does not become established.
pub async fn apply_crds(client: &kube::Client, folder: &Path) -> Result<usize> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut objects = Vec::new();
    for file in files_in(folder).with_context(|| "run `cargo xtask crds` to write the custom resource definitions")? {
        objects.extend(read(&file)?);
    }
    let applied = objects.iter().map(async |object| {
        let name = object.metadata.name.clone().context("a definition without a name")?;
        let params = PatchParams::apply(FIELD_MANAGER).force();
        api.patch(&name, &params, &Patch::Apply(object))
            .await
            .with_context(|| format!("applying CustomResourceDefinition {name}"))?;
        wait_established(&api, &name).await
    });
    futures::future::try_join_all(applied).await?;
    Ok(objects.len())
}

async fn wait_established(api: &Api<CustomResourceDefinition>, name: &str) -> Result<()> {
    let deadline = Instant::now() + ESTABLISH_TIMEOUT;
    loop {
        let definition = api.get(name).await.with_context(|| format!("reading CustomResourceDefinition {name}"))?;
        let conditions = definition.status.and_then(|status| status.conditions).unwrap_or_default();
        if conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True") {
            return Ok(());
        }
        if Instant::now() > deadline {
            let reasons: Vec<String> = conditions
                .iter()
                .map(|c| format!("{}={} {}", c.type_, c.status, c.message.as_deref().unwrap_or("")))
                .collect();
            bail!(
                "CustomResourceDefinition {name} is not established after {} s: {}",
                ESTABLISH_TIMEOUT.as_secs(),
                reasons.join("; ")
            );
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_read_in_order_and_comments_are_no_documents() {
        let text = "# licence\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n# nothing\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata: {k: v}\n";
        let names: Vec<_> = parse(text).unwrap().into_iter().map(|object| object.metadata.name.unwrap()).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
