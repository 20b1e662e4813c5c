//! What the driver does on its own while the agent runs: asks whether containerd works, takes ended containers away,
//! looks for what a crash has left, and gives up images that no task uses.

use std::sync::Arc;
use std::time::Duration;

use drover_clock::SharedClock;
use tokio_util::sync::CancellationToken;

use super::node_containers::{Discards, NodeContainers};

/// How often containerd is asked.
const PROBE_EVERY: Duration = Duration::from_secs(10);
/// How often leftovers are looked for.
const SWEEP_EVERY: Duration = Duration::from_mins(5);
/// The longest time between two looks at images.
const COLLECT_EVERY: Duration = Duration::from_mins(1);
/// The shortest.
const COLLECT_LEAST: Duration = Duration::from_secs(1);

/// Keeps the node's containers in order. Leftovers are looked for from when every known task was found again or given
/// up.
pub(crate) async fn keep(
    node: Arc<NodeContainers>,
    discards: Discards,
    restored: CancellationToken,
    clock: SharedClock,
) {
    tokio::join!(probe(&node), discard(&node, discards), sweep(&node, restored), collect(&node, &clock));
}

async fn probe(node: &NodeContainers) {
    loop {
        tokio::time::sleep(PROBE_EVERY).await;
        if node.probe().await {
            // What could not be taken away while it was down can be now.
            node.wakes_sweep.notify_one();
        }
    }
}

async fn discard(node: &NodeContainers, mut discards: Discards) {
    while let Some(id) = discards.recv().await {
        if let Err(error) = node.remove(&id).await {
            tracing::warn!(error = %error, container = id, "an ended container is taken away later");
        }
    }
}

async fn sweep(node: &NodeContainers, restored: CancellationToken) {
    restored.cancelled().await;
    loop {
        if let Err(error) = node.sweep().await {
            tracing::debug!(error = %error, "leftovers of containers were not looked for");
        }
        tokio::select! {
            biased;
            () = node.wakes_sweep.notified() => {}
            () = tokio::time::sleep(SWEEP_EVERY) => {}
        }
    }
}

async fn collect(node: &NodeContainers, clock: &SharedClock) {
    let every = (node.settings.image_delay / 3).clamp(COLLECT_LEAST, COLLECT_EVERY);
    loop {
        tokio::time::sleep(every).await;
        let collected = async {
            let containers = node.api.containers().await?;
            node.images.collect(&containers, clock.now()).await
        };
        if let Err(error) = collected.await {
            tracing::debug!(error = %error, "unused images were not looked for");
        }
    }
}
