//! `drover volume deregister`.

use drover_api::{CSIVolume, annotation};

use crate::cluster::connect::ConnectArgs;
use crate::completion::names;
use crate::ui::stdio::complain;

use super::claims::refuse_in_use;

/// Arguments of `drover volume deregister`.
#[derive(Debug, clap::Args)]
pub(crate) struct DeregisterArgs {
    /// The volume, by its whole name.
    #[arg(add = names::<CSIVolume>())]
    name: String,
    /// Lets it go with the claims of allocations that are over. No plugin is called: what is attached stays so.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub(super) async fn deregister(args: &DeregisterArgs) -> anyhow::Result<u8> {
    let known = args.connect.connect().await?.objects::<CSIVolume>();
    let mut volume = known.get(&args.name).await?;
    if args.force {
        volume = known.annotate("deregister", volume, annotation::DEREGISTER, |_| Ok("force".to_owned())).await?;
    } else {
        refuse_in_use(&volume, ", or, where that is over and cannot be released, add --force")?;
    }
    known.delete(&volume).await?;
    complain(&format!("csivol/{} is taken out; its data stays at the provider", args.name));
    Ok(0)
}
