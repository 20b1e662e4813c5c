//! Finds the API server: a kubeconfig file, a pod's service account, or what kubectl would use.

use std::path::Path;

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::monitor::{CountRequests, Metrics};

/// A client for the API server.
///
/// # Errors
/// When the file cannot be read, or no API server is configured.
pub async fn client(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    drover_connect::client(config(kubeconfig).await?)
}

/// A client that counts its requests.
///
/// # Errors
/// When the configuration cannot be used.
pub(crate) fn counting_client(config: Config, metrics: &Metrics) -> anyhow::Result<Client> {
    Ok(drover_connect::builder(config)?.with_layer(&CountRequests::new(metrics.clone())).build())
}

/// How the API server is reached.
///
/// # Errors
/// When the file cannot be read, or no API server is configured.
pub(crate) async fn config(kubeconfig: Option<&Path>) -> anyhow::Result<Config> {
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
