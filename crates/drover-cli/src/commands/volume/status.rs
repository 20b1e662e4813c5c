//! `drover volume status`.

use anyhow::Context;
use drover_api::CSIVolume;
use drover_api::csi_volume::Claim;
use jiff::Timestamp;
use kube::api::ListParams;

use crate::cluster::objects::{named, starting};
use crate::ui::output;
use crate::ui::table::Table;
use drover_clock::{Clock, SystemClock};

use super::args::VolumeStatusArgs;
use super::claims::waits_for;
use super::host;
use super::kind::VolumeType;

pub(super) async fn status(args: &VolumeStatusArgs) -> anyhow::Result<u8> {
    match args.r#type {
        VolumeType::Csi => csi(args).await,
        VolumeType::Host => host::status(args).await,
    }
}

async fn csi(args: &VolumeStatusArgs) -> anyhow::Result<u8> {
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
    let volume = found.with_context(|| {
        format!("no CSIVolume {name}; `drover volume status` lists all, and `--type host` HostVolumes")
    })?;
    if args.output.is_for_people() {
        crate::ui::stdio::answer(shown(volume, SystemClock.now()).as_bytes())?;
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
