//! kubectl's flags that say which cluster, as whom and in which namespace.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use drover_api::GoDuration;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// How to reach the cluster.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConnectArgs {
    /// The kubeconfig file; default as kubectl: $KUBECONFIG, then ~/.kube/config, then the pod's service account.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; default its current one.
    #[arg(long)]
    pub(crate) context: Option<String>,
    /// The namespace; default the context's.
    #[arg(short, long)]
    pub(crate) namespace: Option<String>,
    /// The user to act as.
    #[arg(long = "as")]
    act_as: Option<String>,
    /// How long one request may take, as 30s.
    #[arg(long, default_value = "30s")]
    request_timeout: GoDuration,
}

/// What it means that nothing comes for the time of one request.
#[derive(Clone, Copy, Debug)]
enum Silence {
    IsAnError,
    IsFine,
}

/// A cluster that can be asked; clones share its connections.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    /// The namespace of the flags, else the context's.
    pub(crate) namespace: String,
}

impl ConnectArgs {
    /// Prepares a connection.
    pub(crate) async fn connect(&self) -> anyhow::Result<Connection> {
        self.connect_with(Silence::IsAnError).await
    }

    /// Prepares a connection on which nothing may come for long: of a log that is followed, or a command.
    pub(crate) async fn connect_for_streams(&self) -> anyhow::Result<Connection> {
        self.connect_with(Silence::IsFine).await
    }

    /// What the kubeconfig says.
    pub(crate) async fn config(&self) -> anyhow::Result<Config> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = match (&self.kubeconfig, &self.context) {
            (Some(path), _) => {
                let file =
                    Kubeconfig::read_from(path).with_context(|| format!("reading kubeconfig {}", path.display()))?;
                Config::from_custom_kubeconfig(file, &options)
                    .await
                    .with_context(|| format!("using kubeconfig {}", path.display()))?
            }
            (None, Some(_)) => Config::from_kubeconfig(&options).await.context("using the kubeconfig")?,
            (None, None) => Config::infer().await.context("finding the API server; give --kubeconfig")?,
        };
        Ok(config)
    }

    async fn connect_with(&self, silence: Silence) -> anyhow::Result<Connection> {
        let mut config = self.config().await?;
        let patience = self.request_timeout.to_std();
        anyhow::ensure!(patience > Duration::ZERO, "--request-timeout {}: must be above 0s", self.request_timeout);
        config.read_timeout = match silence {
            Silence::IsAnError => Some(patience),
            Silence::IsFine => {
                // What an agent was asked to do is not to be done twice because no answer came.
                config.default_retry = false;
                None
            }
        };
        config.connect_timeout = Some(patience);
        config.auth_info.impersonate.clone_from(&self.act_as);
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = drover_connect::client(config)?;
        Ok(Connection { client, namespace })
    }
}

/// Runs a command that asks the cluster.
pub(crate) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(work)
}
