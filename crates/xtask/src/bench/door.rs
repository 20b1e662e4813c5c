//! How benches get at a gateway, and as whom.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use drover_testkit::{agent_door, manifests};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::waiting::until;

/// Tokens of so many users who may do all.
pub(super) async fn trusted(client: &kube::Client, n_users: usize) -> Result<Vec<String>> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "bench" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group",
                       "name": format!("system:serviceaccounts:{}", drover_api::SYSTEM_NAMESPACE) }],
    });
    manifests::apply(client, &serde_json::from_value(binding)?, drover_api::SYSTEM_NAMESPACE).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), drover_api::SYSTEM_NAMESPACE);
    let mut users = Vec::new();
    for n in 0..n_users {
        let name = format!("user-{n}");
        let account = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
        accounts.create(&PostParams::default(), &account).await.context("creating a ServiceAccount")?;
        users.push(agent_door::token(&accounts, &name, &json!({ "audiences": [] })).await?);
    }
    Ok(users)
}

/// The way to a gateway.
pub(super) struct Door {
    /// Its authorities, in PEM.
    pub(super) authority: String,
    folder: tempfile::TempDir,
    /// Tokens of users.
    pub(super) users: Vec<String>,
    /// From when times count.
    pub(super) began: Instant,
}

impl Door {
    /// Waits for the gateway's certificates.
    pub(super) async fn open(client: &kube::Client, users: Vec<String>, began: Instant) -> Result<Self> {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), drover_api::SYSTEM_NAMESPACE);
        let published = async || {
            let map = maps.get("drover-gateway-ca").await.context("reading the gateway's authorities")?;
            anyhow::Ok(map.data.unwrap_or_default().remove("ca.crt").unwrap_or_default())
        };
        until("the gateway has an authority", async || Ok(!published().await?.is_empty())).await?;
        let folder = tempfile::tempdir().context("making a folder")?;
        let authority = published().await?;
        let door = Self { authority, folder, users, began };
        fs::write(door.authority_file(), &door.authority).context("writing the gateway's authorities")?;
        Ok(door)
    }

    /// The file with its authorities.
    pub(super) fn authority_file(&self) -> PathBuf {
        self.folder.path().join("ca")
    }

    /// A client of a replica, with connections of its own.
    pub(super) async fn client(&self, at: SocketAddr, token: &str) -> Result<kube::Client> {
        let config: Kubeconfig = serde_json::from_value(json!({
            "clusters": [{ "name": "c", "cluster": { "server": url(at), "certificate-authority-data": base64(&self.authority) } }],
            "users": [{ "name": "u", "user": { "token": token } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
            "current-context": "c",
        }))?;
        let mut config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        config.read_timeout = None;
        Ok(kube::Client::try_from(config)?)
    }
}

/// Where users find it.
pub(super) fn url(at: SocketAddr) -> String {
    format!("https://localhost:{}", at.port())
}

/// Kubeconfigs hold certificates so.
fn base64(text: &str) -> Value {
    json!(k8s_openapi::ByteString(text.as_bytes().to_vec()))
}
