//! Layers of an image, unpacked one upon the other.

use std::time::Duration;

use prost_types::FieldMask;
use tonic::Code;

use crate::api::content::content_client::ContentClient;
use crate::api::content::{Info, UpdateRequest};
use crate::api::diff::ApplyRequest;
use crate::api::diff::diff_client::DiffClient;
use crate::api::leases::leases_client::LeasesClient;
use crate::api::leases::{CreateRequest, DeleteRequest};
use crate::api::snapshots::snapshots_client::SnapshotsClient;
use crate::api::snapshots::{CommitSnapshotRequest, PrepareSnapshotRequest};
use crate::api::types::Descriptor;
use crate::containerd::{LONG_TIMEOUT, TIMEOUT, unique_name, within};
use crate::{CallError, Containerd};

/// How long the unpacking of one layer may take.
const LAYER_TIMEOUT: Duration = Duration::from_mins(10);

/// One layer of an image.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// What is unpacked.
    pub archive: Descriptor,
    /// The digest of what comes out of it.
    pub diff_id: String,
    /// The name of the snapshot of it and all below it.
    pub snapshot: String,
}

impl Containerd {
    /// Makes the snapshots of these layers, the lowest first; those that are there stay. The image's configuration, of
    /// this digest, keeps them from being collected. Until then a lease does, which ends at `expires` (RFC 3339) if
    /// this is broken off.
    ///
    /// # Errors
    /// When a layer is no archive, or another one than the image says, or containerd does not answer.
    pub async fn unpack(
        &self,
        layers: &[Layer],
        snapshotter: &str,
        config: &str,
        expires: &str,
    ) -> Result<(), CallError> {
        let name = unique_name("drover");
        let mut client = LeasesClient::new(self.channel());
        let lease = CreateRequest {
            id: name.clone(),
            labels: [("containerd.io/gc.expire".to_owned(), expires.to_owned())].into(),
        };
        within(TIMEOUT, client.create(self.request(lease))).await?;
        let mut leased = self.clone();
        leased.lease = name.parse().ok();
        let mut parent = "";
        for layer in layers {
            if !leased.has_snapshot(snapshotter, &layer.snapshot).await? {
                leased.unpack_layer(layer, parent, (snapshotter, &name)).await?;
            }
            parent = &layer.snapshot;
        }
        leased.keep_snapshot(config, snapshotter, parent).await?;
        let done = DeleteRequest { id: name, sync: false };
        within(TIMEOUT, client.delete(self.request(done))).await.map(drop)
    }

    async fn unpack_layer(
        &self,
        layer: &Layer,
        parent: &str,
        (snapshotter, name): (&str, &str),
    ) -> Result<(), CallError> {
        let key = format!("{name}-{}", layer.snapshot);
        let prepare = PrepareSnapshotRequest {
            snapshotter: snapshotter.to_owned(),
            key: key.clone(),
            parent: parent.to_owned(),
            ..PrepareSnapshotRequest::default()
        };
        let mounts = self.prepare_snapshot(prepare).await?;
        let mut differ = DiffClient::new(self.channel());
        let apply = ApplyRequest { diff: Some(layer.archive.clone()), mounts, ..ApplyRequest::default() };
        let applied = within(LAYER_TIMEOUT, differ.apply(self.request(apply))).await?.applied;
        let came = applied.map(|applied| applied.digest).unwrap_or_default();
        if came != layer.diff_id {
            self.remove_snapshot(snapshotter, &key).await?;
            let reason = format!("layer {} holds {came}, and its image says {}", layer.archive.digest, layer.diff_id);
            return Err(CallError::new(Code::DataLoss, reason));
        }
        let commit = CommitSnapshotRequest {
            snapshotter: snapshotter.to_owned(),
            name: layer.snapshot.clone(),
            key: key.clone(),
            ..CommitSnapshotRequest::default()
        };
        let mut snapshots = SnapshotsClient::new(self.channel());
        match within(LONG_TIMEOUT, snapshots.commit(self.request(commit))).await {
            Ok(()) => Ok(()),
            // Another one was faster.
            Err(error) if error.is_existing() => self.remove_snapshot(snapshotter, &key).await,
            Err(error) => Err(error),
        }
    }

    /// Notes at a document that it needs a snapshot.
    async fn keep_snapshot(&self, digest: &str, snapshotter: &str, snapshot: &str) -> Result<(), CallError> {
        let label = format!("containerd.io/gc.ref.snapshot.{snapshotter}");
        let request = UpdateRequest {
            info: Some(Info {
                digest: digest.to_owned(),
                labels: [(label.clone(), snapshot.to_owned())].into(),
                ..Info::default()
            }),
            update_mask: Some(FieldMask { paths: vec![format!("labels.{label}")] }),
        };
        let mut client = ContentClient::new(self.channel());
        within(TIMEOUT, client.update(self.request(request))).await.map(drop)
    }
}
