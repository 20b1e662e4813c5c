//! `drover volume snapshot …`: a request in the volume's annotations, and the provider's answer in its status.

use anyhow::bail;
use drover_api::csi_volume::CSIVolumeStatus;
use drover_api::{CSIVolume, GoDuration, annotation};
use kube::ResourceExt as _;

use crate::cluster::connect::ConnectArgs;
use crate::cluster::watching::Watching;
use crate::completion::names;
use crate::ui::follow::ENDED_BADLY;
use crate::ui::stdio::{answer, complain};
use crate::ui::table::Table;
use drover_clock::{Clock, SystemClock};

/// What to do with the snapshots of a volume.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Takes a snapshot, and prints its id.
    Create(CreateArgs),
    /// Deletes a snapshot at the provider.
    Delete(DeleteSnapshotArgs),
    /// Asks the provider for the snapshots of a volume.
    List(OfVolume),
}

/// Arguments of all of them.
#[derive(Debug, clap::Args)]
pub(crate) struct OfVolume {
    /// The volume, by its whole name.
    #[arg(add = names::<CSIVolume>())]
    volume: String,
    #[command(flatten)]
    connect: ConnectArgs,
    /// How long to wait for the provider's answer, as 10m; default until it comes.
    #[arg(long)]
    timeout: Option<GoDuration>,
}

/// Arguments of `drover volume snapshot create`.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    of: OfVolume,
    /// Its name; default the time. Another one with the name of an earlier one is the earlier one.
    name: Option<String>,
}

/// Arguments of `drover volume snapshot delete`.
#[derive(Debug, clap::Args)]
pub(crate) struct DeleteSnapshotArgs {
    #[command(flatten)]
    of: OfVolume,
    /// The provider's id of it, as `drover volume snapshot list` shows it.
    id: String,
}

/// Does it.
pub(crate) async fn run(command: &SnapshotCommand) -> anyhow::Result<u8> {
    match command {
        SnapshotCommand::Create(args) => {
            let by_time = || format!("snap-{}", SystemClock.now().strftime("%Y%m%dT%H%M%SZ"));
            let name = args.name.clone().unwrap_or_else(by_time);
            ask(&args.of, annotation::TAKE_SNAPSHOT, &name, |status| {
                let taken = status.snapshots.iter().find(|one| one.name == name);
                taken.map(|one| format!("{}\n", one.id)).unwrap_or_default()
            })
            .await
        }
        SnapshotCommand::Delete(args) => ask(&args.of, annotation::DELETE_SNAPSHOT, &args.id, |_| String::new()).await,
        SnapshotCommand::List(of) => ask(of, annotation::LIST_SNAPSHOTS, "true", shown).await,
    }
}

/// Writes the request, waits until the controller has taken it away again, and prints what `show` makes of the status
/// then.
async fn ask(
    of: &OfVolume,
    request: &'static str,
    value: &str,
    show: impl Fn(&CSIVolumeStatus) -> String,
) -> anyhow::Result<u8> {
    let connection = of.connect.connect().await?;
    let known = connection.objects::<CSIVolume>();
    let found = known.get(&of.volume).await?;
    let volume = known
        .annotate("annotate", found, request, |before| {
            let name = &of.volume;
            match before {
                Some(other) if other != value => {
                    bail!("csivol/{name}: {request}={other} is being carried out; try again when it is over")
                }
                _ => Ok(value.to_owned()),
            }
        })
        .await?;
    let again = format!("kubectl get csivol {} -n {} -o yaml", of.volume, connection.namespace);
    let watching = Watching::new("the provider's work", again, of.timeout);
    let judge = |now: Option<CSIVolume>| {
        let Some(now) = now else {
            complain(&format!("csivol/{} was deleted", of.volume));
            return Ok(Some(ENDED_BADLY));
        };
        if now.annotations().contains_key(request) {
            return Ok(None);
        }
        let after = now.status.unwrap_or_default();
        if !after.snapshot_error.is_empty() {
            bail!("csivol/{}: {}", of.volume, after.snapshot_error);
        }
        answer(show(&after).as_bytes())?;
        Ok(Some(0))
    };
    watching.until(&known, &volume, judge).await
}

fn shown(status: &CSIVolumeStatus) -> String {
    let mut table = Table::new(&["ID", "NAME", "SIZE", "CREATED", "READY"]);
    for one in &status.snapshots {
        table.row(vec![
            one.id.clone(),
            if one.name.is_empty() { "-".to_owned() } else { one.name.clone() },
            one.size_bytes.map_or_else(|| "-".to_owned(), |size| size.to_string()),
            one.created_at.map_or_else(|| "-".to_owned(), |at| at.to_string()),
            one.ready_to_use.to_string(),
        ]);
    }
    let mut out = String::new();
    table.write(&mut out);
    out
}
