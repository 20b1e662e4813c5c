//! `drover volume …` for HostVolumes: the same as `kubectl apply` and `kubectl delete`, and the command ends when the
//! node has done its part.

use anyhow::{Context as _, bail};
use drover_api::HostVolume;
use drover_api::condition::ConditionStatus;
use drover_api::host_volume::{HostVolumeCondition, HostVolumeConditionType};
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::ListParams;

use super::args::{DeleteVolumeArgs, RegisterArgs, VolumeStatusArgs};
use crate::cluster::manifest::{Applying, Manifest};
use crate::cluster::objects::{named, starting};
use crate::cluster::watching::Watching;
use crate::ui::follow::ENDED_BADLY;
use crate::ui::output;
use crate::ui::stdio::{answer, complain};
use crate::ui::table::Table;
use drover_clock::{Clock, SystemClock};

/// Lists HostVolumes, or shows one.
pub(super) async fn status(args: &VolumeStatusArgs) -> anyhow::Result<u8> {
    let known = args.connect.connect().await?.objects_of::<HostVolume>(args.all_namespaces);
    let mut all = known.list(&ListParams::default()).await?;
    let Some(name) = &args.name else {
        all.retain(|volume| {
            let plugin = volume.spec.plugin.map(|plugin| plugin.to_string());
            let node = volume.status.as_ref().map(|status| &status.node_name);
            args.plugin.as_ref().is_none_or(|wanted| plugin.as_ref() == Some(wanted))
                && args.node.as_ref().is_none_or(|wanted| node == Some(wanted))
        });
        output::list(&all, &args.output, || rows(&all, args.all_namespaces, SystemClock.now()))?;
        return Ok(0);
    };
    let found = match named(&all, name) {
        Some(exact) => Some(exact),
        None => starting(&all, name)?,
    };
    let volume =
        found.with_context(|| format!("no HostVolume {name}; `drover volume status --type host` lists all"))?;
    if args.output.is_for_people() {
        answer(shown(volume).as_bytes())?;
    } else {
        output::object(volume, &args.output)?;
    }
    Ok(0)
}

fn rows(volumes: &[HostVolume], with_namespace: bool, now: Timestamp) -> Table {
    let mut head = vec!["NAME", "SOURCE", "NODE", "PHASE", "ALLOCS", "REASON", "AGE"];
    if with_namespace {
        head.insert(0, "NAMESPACE");
    }
    let mut table = Table::new(&head);
    for volume in volumes {
        let status = volume.status.clone().unwrap_or_default();
        let columns = status.columns;
        let (name, age) = (volume.name_any(), output::age(volume, now));
        let phase = status.phase.to_string();
        let mut cells = vec![name, columns.source, columns.node, phase, columns.allocs, columns.reason, age];
        if with_namespace {
            cells.insert(0, volume.metadata.namespace.clone().unwrap_or_default());
        }
        table.row(cells);
    }
    table
}

/// A volume with the slots that keep it, for people.
fn shown(volume: &HostVolume) -> String {
    let status = volume.status.clone().unwrap_or_default();
    let name = volume.name_any();
    let asked_as = if volume.spec.name.is_empty() { &name } else { &volume.spec.name };
    let mut lines = vec![
        format!("volume       {name}"),
        format!("asked as     {asked_as}"),
        format!("source       {}", status.columns.source),
        format!("node         {}", status.columns.node),
        format!("phase        {}", status.phase),
        format!("used by      {} allocations", status.columns.allocs),
    ];
    let conditions = status.conditions.iter();
    lines.extend(conditions.map(|one| format!("{:<12} {} {}: {}", one.r#type, one.status, one.reason, one.message)));
    let mut out = lines.join("\n");
    out.push('\n');
    if !status.claims.is_empty() {
        let mut table = Table::new(&["STICKY TO JOB", "GROUP", "INDEX"]);
        for claim in status.claims {
            table.row(vec![claim.job_name, claim.group, claim.index.to_string()]);
        }
        out.push('\n');
        table.write(&mut out);
    }
    out
}

/// A volume that its node is to make.
pub(super) async fn create(args: &RegisterArgs, manifest: &Manifest) -> anyhow::Result<u8> {
    if manifest.value["spec"]["hostPath"].as_str().is_some_and(|path| !path.is_empty()) {
        bail!(
            "hvol/{}: spec.hostPath names a folder that exists; use `drover volume register`, or name a plugin instead",
            manifest.name
        );
    }
    apply(args, manifest).await
}

/// Writes the manifest and waits for what the node says.
pub(super) async fn apply(args: &RegisterArgs, manifest: &Manifest) -> anyhow::Result<u8> {
    let connection = manifest.connect(&args.connect).await?;
    let known = connection.objects::<HostVolume>();
    let how = Applying { is_dry_run: false, takes_over: args.force_conflicts };
    let volume = manifest.apply(&known, how).await?;
    let name = volume.name_any();
    let again = format!("drover volume status --type host {name} -n {}", connection.namespace);
    if args.detach {
        complain(&format!("hvol/{name} is applied; look at it with `{again}`"));
        return Ok(0);
    }
    let generation = volume.metadata.generation;
    let mut seen = String::new();
    Watching::new("the node's work", again, args.timeout)
        .until(&known, &volume, |now| Ok(applied(&name, generation, now, &mut seen)))
        .await
}

/// Tells what is being done, until groups can mount the volume or a person is needed.
fn applied(name: &str, generation: Option<i64>, now: Option<HostVolume>, seen: &mut String) -> Option<u8> {
    let Some(volume) = now else {
        complain(&format!("hvol/{name} was deleted"));
        return Some(ENDED_BADLY);
    };
    let status = volume.status.filter(|status| Some(status.observed_generation) >= generation)?;
    if let Some(stalled) = true_one(&status.conditions, HostVolumeConditionType::Stalled) {
        complain(&format!("hvol/{name}: {}: {}", stalled.reason, stalled.message));
        return Some(ENDED_BADLY);
    }
    if true_one(&status.conditions, HostVolumeConditionType::Ready).is_some() {
        complain(&format!("hvol/{name} can be used on node {}", status.node_name));
        return Some(0);
    }
    report(name, &status.conditions, seen);
    None
}

/// Has the node delete it, and waits until it has.
pub(super) async fn delete(args: &DeleteVolumeArgs) -> anyhow::Result<u8> {
    let connection = args.connect.connect().await?;
    let known = connection.objects::<HostVolume>();
    let volume = known.get(&args.name).await?;
    known.delete(&volume).await?;
    let name = &args.name;
    let again = format!("drover volume status --type host {name} -n {}", connection.namespace);
    let files = if volume.spec.plugin.is_some() { "with its files" } else { "and its folder stays" };
    let mut seen = String::new();
    let judge = |now: Option<HostVolume>| {
        let Some(volume) = now else {
            complain(&format!("hvol/{name} is deleted, {files}"));
            return Ok(Some(0));
        };
        report(name, &volume.status.unwrap_or_default().conditions, &mut seen);
        Ok(None)
    };
    Watching::new("the deletion", again, args.timeout).until(&known, &volume, judge).await
}

/// Tells what the volume waits for, once.
fn report(name: &str, conditions: &[HostVolumeCondition], seen: &mut String) {
    let ready = conditions.iter().find(|one| one.r#type == HostVolumeConditionType::Ready);
    let waits = ready.filter(|one| one.status != ConditionStatus::True && one.message != *seen);
    if let Some(waits) = waits {
        complain(&format!("hvol/{name}: {}", waits.message));
        seen.clone_from(&waits.message);
    }
}

fn true_one(conditions: &[HostVolumeCondition], kind: HostVolumeConditionType) -> Option<&HostVolumeCondition> {
    conditions.iter().find(|one| one.r#type == kind && one.status == ConditionStatus::True)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::{Value, json};

    use super::*;

    fn volume(status: &Value) -> HostVolume {
        serde_json::from_value(json!({
            "apiVersion": "drover.dev/v1alpha1", "kind": "HostVolume",
            "metadata": { "name": "ledger-files", "namespace": "shop", "generation": 2, "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "name": "ledger", "plugin": "mkdir", "capabilities": [] }, "status": status,
        }))
        .expect("a volume")
    }

    fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({ "type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": 2,
            "lastTransitionTime": "2026-01-01T00:00:00Z" })
    }

    fn ready() -> Value {
        json!({ "observedGeneration": 2, "phase": "ready", "nodeName": "n-1", "id": "u",
            "columns": { "source": "mkdir", "node": "n-1", "allocs": "1", "reason": "-" },
            "conditions": [condition("Ready", "True", "Available", "it is on node n-1")],
            "claims": [{ "jobName": "db", "jobUID": "u1", "group": "main", "index": 0 }] })
    }

    #[test]
    fn a_volume_is_shown_with_the_slots_that_keep_it() {
        expect![[r"
            volume       ledger-files
            asked as     ledger
            source       mkdir
            node         n-1
            phase        ready
            used by      1 allocations
            Ready        True Available: it is on node n-1

              STICKY TO JOB  GROUP  INDEX
              db             main   0
        "]]
        .assert_eq(&shown(&volume(&ready())));
        let mut out = String::new();
        let now: Timestamp = "2026-01-01T00:00:45Z".parse().expect("a time");
        rows(&[volume(&ready())], true, now).write(&mut out);
        let lines: Vec<&str> = out.lines().map(str::trim).collect();
        assert_eq!(
            lines,
            [
                "NAMESPACE  NAME          SOURCE  NODE  PHASE  ALLOCS  REASON  AGE",
                "shop       ledger-files  mkdir   n-1   ready  1       -       45s",
            ]
        );
    }

    #[test]
    fn a_command_ends_when_the_volume_can_be_used_or_a_person_is_needed() {
        let code = |status: Value| applied("v", Some(2), Some(volume(&status)), &mut String::new());
        assert_eq!(code(ready()), Some(0));
        let mut before = ready();
        before["observedGeneration"] = json!(1);
        assert_eq!(code(before), None, "of an earlier manifest");
        let making =
            json!({ "observedGeneration": 2, "conditions": [condition("Ready", "Unknown", "Making", "asked")] });
        assert_eq!(code(making), None);
        let stalled = [condition("Ready", "False", "NoNode", "none"), condition("Stalled", "True", "NoNode", "none")];
        assert_eq!(code(json!({ "observedGeneration": 2, "conditions": stalled })), Some(ENDED_BADLY));
        assert_eq!(applied("v", Some(2), None, &mut String::new()), Some(ENDED_BADLY));
    }
}
