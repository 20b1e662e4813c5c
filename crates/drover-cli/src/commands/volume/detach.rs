//! `drover volume detach`.

use anyhow::bail;
use drover_api::csi_volume::{Claim, ClaimState};
use drover_api::{CSIVolume, ClientNode, annotation};

use crate::cluster::connect::ConnectArgs;
use crate::completion::{cluster_names, names};
use crate::ui::stdio::complain;

use super::claims::waits_for;

/// Arguments of `drover volume detach`.
#[derive(Debug, clap::Args)]
pub(crate) struct DetachArgs {
    /// The volume, by its whole name.
    #[arg(add = names::<CSIVolume>())]
    name: String,
    /// The node.
    #[arg(add = cluster_names::<ClientNode>())]
    node: String,
    /// You answer for it that nothing on the node writes to the volume any more, for example because it is switched
    /// off.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub(super) async fn detach(args: &DetachArgs) -> anyhow::Result<u8> {
    let known = args.connect.connect().await?.objects::<CSIVolume>();
    let volume = known.get(&args.name).await?;
    let claims = volume.status.as_ref().map(|status| &status.claims[..]).unwrap_or_default();
    let there: Vec<&Claim> = claims.iter().filter(|claim| claim.node_name == args.node).collect();
    let Some(claim) = there.first() else {
        bail!(
            "csivol/{}: no allocation on node {} holds it; `drover volume status {0}` shows which do",
            args.name,
            args.node
        );
    };
    if there.iter().all(|claim| claim.state == ClaimState::Taken) {
        bail!(
            "csivol/{}: allocation {} on node {} uses it; stop its job first, and it is released by itself",
            args.name,
            claim.allocation,
            args.node
        );
    }
    if !args.force {
        complain(&format!(
            "csivol/{}: its release is tried again and again; it waits for: {}. If you can answer for it that nothing on {} writes to it any more, add --force",
            args.name,
            waits_for(claim),
            args.node
        ));
        return Ok(2);
    }
    known
        .annotate("detach", volume, annotation::FORCE_RELEASE, |before| Ok(annotation::with_node(before, &args.node)))
        .await?;
    complain(&format!(
        "csivol/{} is released from node {}; watch it with `kubectl get csivol {0} -w`",
        args.name, args.node
    ));
    Ok(0)
}
