//! Where a group's volumes are: what the hook that mounts them hands to the tasks.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use drover_api::task::Task;

use crate::supervisor::protocol::BindMount;

/// A volume on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeSource {
    pub(crate) path: PathBuf,
    pub(crate) is_read_only: bool,
}

/// The volumes by their names in the group; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct VolumeSources(Arc<Mutex<BTreeMap<String, VolumeSource>>>);

impl VolumeSources {
    /// Notes where a volume is.
    pub(super) fn set(&self, name: &str, source: VolumeSource) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), source);
    }

    /// What a task mounts.
    pub(crate) fn mounts(&self, task: &Task) -> Result<Vec<BindMount>, String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mounts = task.volume_mounts.iter().map(|mount| {
            let source = known.get(&mount.volume);
            let source =
                source.ok_or_else(|| format!("volumeMounts: volume {} is not mounted on this node", mount.volume))?;
            Ok(BindMount {
                source: source.path.to_string_lossy().into_owned(),
                target: mount.destination.clone(),
                read_only: mount.read_only || source.is_read_only,
            })
        });
        mounts.collect()
    }
}
