//! Looks at the cluster: objects by the API server, and what the running allocations use by the gateway.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_api::allocation::ClientStatus;
use drover_api::{Allocation, ClientNode, Job};
use drover_socket::protocol::AllocStats;
use futures::StreamExt as _;
use kube::api::ListParams;

use super::look::{Look, Subject, status_of};
use crate::cluster::connect::{ConnectArgs, Connection};
use crate::commands::alloc;

/// Allocations that are asked for at the same time; a user may have 128 streams of a gateway.
const ASKED_AT_ONCE: usize = 32;
/// How long one of them may take: the gateway gives an agent up earlier.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Looks at one cluster again and again.
pub(super) struct Observer {
    objects: Connection,
    /// Of its own: a request for a sample is not made twice.
    streams: Connection,
    all_namespaces: bool,
}

impl Observer {
    /// Prepares the connections.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub(super) async fn new(connect: &ConnectArgs, all_namespaces: bool) -> anyhow::Result<Self> {
        let (objects, streams) = (connect.connect().await?, connect.connect_for_streams().await?);
        Ok(Self { objects, streams, all_namespaces })
    }

    /// Looks at everything that this needs.
    ///
    /// # Errors
    /// When objects that are shown cannot be listed. What an allocation uses may be unknown.
    pub(super) async fn look(&self, what: Subject) -> anyhow::Result<Look> {
        let all = ListParams::default();
        let nodes = self.objects.cluster_objects::<ClientNode>().list(&all).await;
        let nodes = match nodes {
            Err(error) if what == Subject::Nodes => return Err(error),
            // Who may see a namespace need not see nodes.
            Err(error) => Err(format!("{error:#}")),
            Ok(nodes) => Ok(nodes),
        };
        let jobs = match what {
            Subject::Jobs => self.objects.objects_of::<Job>(self.all_namespaces).list(&all).await?,
            Subject::Nodes | Subject::Allocs => Vec::new(),
        };
        let mut allocs = self.objects.objects_of::<Allocation>(self.all_namespaces).list(&all).await?;
        allocs.retain(|alloc| match status_of(alloc) {
            ClientStatus::Pending | ClientStatus::Running | ClientStatus::Unknown => true,
            ClientStatus::Complete | ClientStatus::Failed | ClientStatus::Lost => false,
        });
        let samples = self.samples(&allocs).await;
        Ok(Look { nodes, jobs, allocs, samples, is_of_all_namespaces: self.all_namespaces && what != Subject::Nodes })
    }

    async fn samples(&self, allocs: &[Allocation]) -> BTreeMap<String, Result<AllocStats, String>> {
        let may_run = allocs.iter().filter(|alloc| status_of(alloc) != ClientStatus::Pending);
        let sample = async |alloc: &Allocation| {
            let asked = tokio::time::timeout(ANSWER_TIMEOUT, alloc::usage(&self.streams, alloc)).await;
            let used = match asked {
                Ok(used) => used.map_err(|error| format!("{error:#}")),
                Err(_) => Err(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs())),
            };
            (alloc.metadata.uid.clone().unwrap_or_default(), used)
        };
        futures::stream::iter(may_run.map(sample)).buffer_unordered(ASKED_AT_ONCE).collect().await
    }
}
