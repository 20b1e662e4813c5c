//! Finds the API server: a kubeconfig file, a pod's service account, or what kubectl would use.

use std::path::Path;

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// A client for the API server.
///
/// # Errors
/// When the file cannot be read, or no API server is configured.
pub async fn client(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    let config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).with_context(|| format!("reading kubeconfig {}", path.display()))?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("using kubeconfig {}", path.display()))?
        }
        None => Config::infer().await.context("finding the API server; give --kubeconfig")?,
    };
    Client::try_from(config).context("preparing the connection to the API server")
}
