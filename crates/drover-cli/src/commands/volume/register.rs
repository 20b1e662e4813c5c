//! `drover volume register`, `create` and `delete`: the same as `kubectl apply` and `kubectl delete`, and the command
//! ends when the provider has done its part.

use anyhow::bail;
use drover_api::condition::ConditionStatus;
use drover_api::csi_volume::{VolumeCondition, VolumeConditionType};
use drover_api::{CSIVolume, annotation};
use kube::ResourceExt as _;

use super::args::{DeleteVolumeArgs, RegisterArgs};
use super::claims::refuse_in_use;
use super::host;
use super::kind::{HOST, KINDS, VolumeType};
use crate::cluster::manifest::{Applying, Manifest};
use crate::cluster::watching::Watching;
use crate::ui::follow::ENDED_BADLY;
use crate::ui::stdio::complain;

/// A volume that exists at its provider, or one that drover knows already.
pub(crate) async fn register(args: &RegisterArgs) -> anyhow::Result<u8> {
    let manifest = Manifest::read(&args.file, &KINDS)?;
    if manifest.kind() == HOST.0 {
        return host::apply(args, &manifest).await;
    }
    apply(args, &manifest, false).await
}

/// A volume that its provider is to make.
pub(crate) async fn create(args: &RegisterArgs) -> anyhow::Result<u8> {
    let manifest = Manifest::read(&args.file, &KINDS)?;
    if manifest.kind() == HOST.0 {
        return host::create(args, &manifest).await;
    }
    if manifest.value["spec"]["externalID"].as_str().is_some_and(|id| !id.is_empty()) {
        bail!(
            "csivol/{}: spec.externalID names a volume that exists at its provider; use `drover volume register`, or take it out",
            manifest.name
        );
    }
    apply(args, &manifest, true).await
}

/// Writes the manifest and waits for what the provider says; `makes` where it is to make the volume.
async fn apply(args: &RegisterArgs, manifest: &Manifest, makes: bool) -> anyhow::Result<u8> {
    let connection = manifest.connect(&args.connect).await?;
    let known = connection.objects::<CSIVolume>();
    let how = Applying { is_dry_run: false, takes_over: args.force_conflicts };
    let volume = manifest.apply(&known, how).await?;
    let name = volume.name_any();
    let again = format!("drover volume status {name} -n {}", connection.namespace);
    if args.detach {
        complain(&format!("csivol/{name} is applied; look at it with `{again}`"));
        return Ok(0);
    }
    let watching = Watching::new("the provider's work", again, args.timeout);
    let mut told = String::new();
    watching
        .until(&known, &volume, |now| Ok(registered(&name, (volume.metadata.generation, makes), now, &mut told)))
        .await
}

/// Tells what is being done, until the volume can be used or a person is needed.
fn registered(
    name: &str,
    (generation, makes): (Option<i64>, bool),
    now: Option<CSIVolume>,
    told: &mut String,
) -> Option<u8> {
    let Some(volume) = now else {
        complain(&format!("csivol/{name} was deleted"));
        return Some(ENDED_BADLY);
    };
    let status = volume.status.filter(|status| Some(status.observed_generation) >= generation)?;
    let condition = |kind: VolumeConditionType| {
        let is_it = |one: &&VolumeCondition| one.r#type == kind && one.status == ConditionStatus::True;
        status.conditions.iter().find(is_it)
    };
    if let Some(stalled) = condition(VolumeConditionType::Stalled) {
        complain(&format!("csivol/{name}: {}: {}", stalled.reason, stalled.message));
        return Some(ENDED_BADLY);
    }
    // A volume in use can be used while a change of its spec is asked about.
    let is_asked = status.controller_required && Some(status.validated_generation) != volume.metadata.generation;
    if condition(VolumeConditionType::Ready).is_some() && !is_asked {
        if makes && !status.created_by_drover && volume.spec.external_id.is_empty() {
            complain(&format!(
                "csivol/{name} is registered and not made: plugin {} makes no volumes; use `drover volume register` for one that is there",
                volume.spec.plugin_id
            ));
            return Some(ENDED_BADLY);
        }
        complain(&format!("csivol/{name} can be used; its provider calls it {}", status.external_id));
        return Some(0);
    }
    if let Some(going_on) = condition(VolumeConditionType::Reconciling).filter(|one| one.message != *told) {
        complain(&format!("csivol/{name}: {}", going_on.message));
        told.clone_from(&going_on.message);
    }
    None
}

/// Has the provider or the node delete it, and waits until it has.
pub(crate) async fn delete(args: &DeleteVolumeArgs) -> anyhow::Result<u8> {
    match args.r#type {
        VolumeType::Csi => delete_csi(args).await,
        VolumeType::Host => host::delete(args).await,
    }
}

async fn delete_csi(args: &DeleteVolumeArgs) -> anyhow::Result<u8> {
    let connection = args.connect.connect().await?;
    let known = connection.objects::<CSIVolume>();
    let volume = known.get(&args.name).await?;
    refuse_in_use(&volume, "")?;
    let volume = known.annotate("delete", volume, annotation::DELETE_DATA, |_| Ok("true".to_owned())).await?;
    known.delete(&volume).await?;
    let name = &args.name;
    let again = format!("drover volume status {name} -n {}", connection.namespace);
    let watching = Watching::new("the deletion", again, args.timeout);
    let mut told = String::new();
    let judge = |now: Option<CSIVolume>| {
        let Some(volume) = now else {
            complain(&format!("csivol/{name} is deleted, with its data"));
            return Ok(Some(0));
        };
        let conditions = volume.status.map(|status| status.conditions).unwrap_or_default();
        let schedulable = conditions.iter().find(|one| one.r#type == VolumeConditionType::Schedulable);
        let is_news = |one: &&VolumeCondition| one.status == ConditionStatus::False && one.message != told;
        if let Some(condition) = schedulable.filter(is_news) {
            complain(&format!("csivol/{name}: {}", condition.message));
            told.clone_from(&condition.message);
        }
        Ok(None)
    };
    watching.until(&known, &volume, judge).await
}
