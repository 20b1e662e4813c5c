//! `drover volume …`: volumes are registered, made and deleted (`register`), copied (`snapshot`), and shown with who holds them and what
//! each claim waits for; and a person helps where a release gets stuck.
//!
//! Input: a manifest, or a volume's name and a request. Output: the manifest applied, one annotation, or a deletion; the controller does what
//! they say. Must never touch claims.

mod register;
mod snapshot;

use anyhow::{Context, bail};
use drover_api::csi_volume::{AttachState, Claim, ClaimMode, ClaimState};
use drover_api::{CSIVolume, ClientNode, annotation};
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::ListParams;

use super::completion::{cluster_names, names};
use super::connect::{ConnectArgs, block_on};
use super::objects::{named, starting};
use super::output::{self, Output};
use super::table::Table;
use crate::stdio::complain;
use drover_clock::{Clock, SystemClock};

/// What to do with volumes.
#[derive(Debug, clap::Subcommand)]
pub(super) enum VolumeCommand {
    /// Lists volumes, or shows who holds one and what each claim waits for.
    Status(StatusArgs),
    /// Releases what allocations that are over still hold of a volume on a node.
    Detach(DetachArgs),
    /// Takes a volume out of the cluster; its data stays at the provider.
    Deregister(DeregisterArgs),
    /// Makes a volume known that exists at its provider, or changes it.
    Register(register::RegisterArgs),
    /// Has its provider make a volume.
    Create(register::RegisterArgs),
    /// Has its provider delete a volume with all its data.
    Delete(register::DeleteArgs),
    /// Takes, lists and deletes snapshots of a volume.
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotCommand),
}

/// Arguments of `drover volume status`.
#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    /// The volume, or the start of its name; none for all.
    #[arg(add = names::<CSIVolume>())]
    name: Option<String>,
    /// Of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "name")]
    all_namespaces: bool,
    /// Those of one plugin.
    #[arg(long, conflicts_with = "name")]
    plugin: Option<String>,
    /// Those that allocations on one node hold.
    #[arg(long, conflicts_with = "name")]
    node: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    /// How they are printed.
    #[arg(short, long, default_value = "table")]
    output: Output,
}

/// Arguments of `drover volume detach`.
#[derive(Debug, clap::Args)]
pub(super) struct DetachArgs {
    /// The volume, by its whole name.
    #[arg(add = names::<CSIVolume>())]
    name: String,
    /// The node.
    #[arg(add = cluster_names::<ClientNode>())]
    node: String,
    /// You answer for it that nothing on the node writes to the volume any more, for example because it is switched off.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Arguments of `drover volume deregister`.
#[derive(Debug, clap::Args)]
pub(super) struct DeregisterArgs {
    /// The volume, by its whole name.
    #[arg(add = names::<CSIVolume>())]
    name: String,
    /// Lets it go with the claims of allocations that are over. No plugin is called: what is attached stays so.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Does it.
pub(super) fn run(command: &VolumeCommand) -> anyhow::Result<u8> {
    block_on(async {
        match command {
            VolumeCommand::Status(args) => status(args).await,
            VolumeCommand::Detach(args) => detach(args).await,
            VolumeCommand::Deregister(args) => deregister(args).await,
            VolumeCommand::Register(args) => register::register(args).await,
            VolumeCommand::Create(args) => register::create(args).await,
            VolumeCommand::Delete(args) => register::delete(args).await,
            VolumeCommand::Snapshot(command) => snapshot::run(command).await,
        }
    })
}

async fn status(args: &StatusArgs) -> anyhow::Result<u8> {
    let known = args.connect.connect().await?.objects_of::<CSIVolume>(args.all_namespaces);
    let Some(name) = &args.name else {
        let of_plugin = args.plugin.as_ref().map(|id| format!("spec.pluginID={id}"));
        let params = ListParams { field_selector: of_plugin, ..ListParams::default() };
        let is_there = |claim: &Claim| args.node.as_ref().is_none_or(|node| claim.node_name == *node);
        let mut volumes = known.list(&params).await?;
        volumes.retain(|volume| {
            args.node.is_none() || volume.status.iter().flat_map(|status| &status.claims).any(is_there)
        });
        output::list(&volumes, &args.output, || rows(&volumes, args.all_namespaces))?;
        return Ok(0);
    };
    let all = known.list(&ListParams::default()).await?;
    let found = match named(&all, name) {
        Some(exact) => Some(exact),
        None => starting(&all, name)?,
    };
    let volume = found.with_context(|| format!("no volume {name}; `drover volume status` lists all"))?;
    if args.output.is_for_people() {
        crate::stdio::answer(shown(volume, SystemClock.now()).as_bytes())?;
    } else {
        output::object(volume, &args.output)?;
    }
    Ok(0)
}

fn rows(volumes: &[CSIVolume], with_namespace: bool) -> Table {
    let mut head = vec!["NAME", "PLUGIN", "ACCESS", "SCHEDULABLE", "CLAIMS", "PHASE", "AGE"];
    if with_namespace {
        head.insert(0, "NAMESPACE");
    }
    let mut table = Table::new(&head);
    let now = SystemClock.now();
    for volume in volumes {
        let status = volume.status.clone().unwrap_or_default();
        let mut cells = vec![
            volume.metadata.name.clone().unwrap_or_default(),
            volume.spec.plugin_id.clone(),
            status.columns.access,
            status.columns.schedulable,
            status.columns.claims,
            status.phase.to_string(),
            output::age(volume, now),
        ];
        if with_namespace {
            cells.insert(0, volume.metadata.namespace.clone().unwrap_or_default());
        }
        table.row(cells);
    }
    table
}

/// A volume with its claims, for people. Neither mount flags nor the names of what is secret are shown.
fn shown(volume: &CSIVolume, now: Timestamp) -> String {
    let status = volume.status.clone().unwrap_or_default();
    let text = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let mut lines = vec![
        format!("volume       {}", volume.metadata.name.as_deref().unwrap_or_default()),
        format!(
            "plugin       {} ({} {})",
            volume.spec.plugin_id,
            text(&status.provider),
            text(&status.provider_version)
        ),
        format!("external id  {}", text(&status.external_id)),
        format!("phase        {}", status.phase),
        format!("access       {}", status.columns.access),
        format!(
            "plugin runs  {}/{} controllers, {}/{} nodes healthy",
            status.controllers_healthy, status.controllers_expected, status.nodes_healthy, status.nodes_expected
        ),
    ];
    for condition in &status.conditions {
        lines
            .push(format!("{:<12} {} {}: {}", condition.r#type, condition.status, condition.reason, condition.message));
    }
    let mut out = lines.join("\n");
    out.push('\n');
    if status.claims.is_empty() {
        return out;
    }
    let mut table = Table::new(&["ALLOCATION", "NODE", "MODE", "STATE", "SINCE", "WAITS FOR"]);
    for claim in &status.claims {
        table.row(vec![
            claim.allocation.clone(),
            claim.node_name.clone(),
            claim.mode.to_string(),
            claim.state.to_string(),
            claim.since.map_or_else(|| "-".to_owned(), |since| output::span(now.duration_since(since).as_secs())),
            waits_for(claim),
        ]);
    }
    out.push('\n');
    table.write(&mut out);
    out
}

fn waits_for(claim: &Claim) -> String {
    if !claim.error.is_empty() {
        return claim.error.clone();
    }
    let node = &claim.node_name;
    match (claim.state, claim.attach) {
        (ClaimState::Taken, AttachState::Attached) => match claim.mode {
            ClaimMode::Read => "nothing: it is read".to_owned(),
            ClaimMode::Write => "nothing: it is written to".to_owned(),
        },
        (ClaimState::Taken, AttachState::Pending) => format!("the plugin's controller attaches it to {node}"),
        (ClaimState::Taken, AttachState::Failed) => "its allocation fails".to_owned(),
        (ClaimState::Unpublishing, _) => format!("node {node} unmounts it"),
        (ClaimState::NodeDetached, _) => format!("the plugin's controller detaches it from {node}"),
        (ClaimState::ControllerDetached | ClaimState::ReadyToFree, _) => "nothing: it is about to be free".to_owned(),
    }
}

async fn detach(args: &DetachArgs) -> anyhow::Result<u8> {
    let known = args.connect.connect().await?.objects::<CSIVolume>();
    let volume = known.get(&args.name).await?;
    let claims = volume.status.as_ref().map(|status| &status.claims[..]).unwrap_or_default();
    let there: Vec<&Claim> = claims.iter().filter(|claim| claim.node_name == args.node).collect();
    let Some(claim) = there.first() else {
        bail!("csivol/{}: nobody on node {} holds it; `drover volume status {0}` shows who does", args.name, args.node);
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

async fn deregister(args: &DeregisterArgs) -> anyhow::Result<u8> {
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

/// A volume that somebody holds is not to go; `or` says what else there is to do.
fn refuse_in_use(volume: &CSIVolume, or: &str) -> anyhow::Result<()> {
    let Some(claim) = volume.status.as_ref().and_then(|status| status.claims.first()) else { return Ok(()) };
    bail!(
        "csivol/{} is in use by allocation {} on node {}; stop its job and wait for the release{or}",
        volume.name_any(),
        claim.allocation,
        claim.node_name
    )
}
