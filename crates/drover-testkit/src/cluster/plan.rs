//! What one node is: written down once by who starts it, read by the processes that become it.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// A node of the cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodePlan {
    /// `n1`, `n2`, ...
    pub(super) name: String,
    /// Counted from 1.
    pub(super) number: u8,
    /// Its own folder.
    pub(super) data: PathBuf,
    /// Where its programs are.
    pub(super) programs: PathBuf,
    /// Programs that its tasks find on their PATH.
    pub(super) bin: PathBuf,
    /// The kubelet's.
    pub(super) kubeconfig: PathBuf,
    /// A path to its network namespace.
    pub(super) network: PathBuf,
    /// The control group that is the root of all its own.
    pub(super) cgroup: String,
    /// Archives of images that it has from the start.
    pub(super) images: Vec<PathBuf>,
    /// What leads from the addresses of Services to those of their endpoints, where that is wanted.
    pub(super) proxy: Option<ProxyPlan>,
}

/// A node's `kube-proxy`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProxyPlan {
    /// The program.
    pub(super) program: PathBuf,
    /// Its own.
    pub(super) kubeconfig: PathBuf,
}

/// The folder of containerd's socket on each node; programs do not look there by themselves.
pub(super) const SOCKETS: &str = "/run/node";

impl NodePlan {
    /// Its address.
    pub(super) fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 200, self.number, 2)
    }

    /// Who forwards for it.
    pub(super) fn gateway(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 200, self.number, 1)
    }

    /// The addresses of its pods.
    pub(super) fn pods(&self) -> String {
        format!("10.244.{}.0/24", self.number)
    }

    /// containerd's socket, as the machine sees it.
    pub(super) fn socket(&self) -> PathBuf {
        self.sockets().join("c.sock")
    }

    /// The folder that the node sees at [`SOCKETS`].
    pub(super) fn sockets(&self) -> PathBuf {
        self.data.join("s")
    }

    pub(super) fn log(&self, program: &str) -> PathBuf {
        self.data.join(format!("{program}.log"))
    }

    pub(super) fn write(&self) -> Result<PathBuf> {
        let path = self.data.join("plan.json");
        let text = serde_json::to_string_pretty(self).context("writing down a node")?;
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))
    }
}
