//! Where a group's volumes are: what the hook that mounts them hands to the tasks.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use drover_api::task::Task;
use drover_core::task::environment::{MAX_TOTAL_BYTES, TooLong};
use drover_core::validate::is_mount_destination;

use drover_supervisor::protocol::BindMount;

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

    /// What a task mounts, its fields interpolated; what it asks for twice is mounted once.
    pub(crate) fn mounts(
        &self,
        task: &Task,
        interpolated: impl Fn(&str) -> Result<String, TooLong>,
    ) -> Result<Vec<BindMount>, String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut mounts = Vec::new();
        let mut left = MAX_TOTAL_BYTES;
        for (n, mount) in task.volume_mounts.iter().enumerate() {
            let expanded = |field: &str, text: &str| {
                interpolated(text).map_err(|error| format!("volumeMounts[{n}].{field}: {error}"))
            };
            let (volume, target) = (expanded("volume", &mount.volume)?, expanded("destination", &mount.destination)?);
            left = left.checked_sub(target.len()).ok_or_else(|| {
                format!("volumeMounts[{n}].destination: with it all of them have more than {MAX_TOTAL_BYTES} bytes")
            })?;
            let source = known.get(&volume);
            let source = source.ok_or_else(|| format!("volumeMounts: volume {volume} is not mounted on this node"))?;
            if !is_mount_destination(&target) {
                return Err(format!("volumeMounts: destination {target} must be an absolute path without .."));
            }
            let source_path = source.path.to_string_lossy().into_owned();
            let mount = BindMount { source: source_path, target, read_only: mount.read_only || source.is_read_only };
            if !mounts.contains(&mount) {
                mounts.push(mount);
            }
        }
        Ok(mounts)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_069_no_reader_sees_half_a_volume_and_what_it_was_given_is_its_own() {
        let task: Task = serde_json::from_value(json!({
            "name": "t", "driver": "exec", "volumeMounts": [{ "volume": "data", "destination": "/data" }],
        }))
        .expect("a task");
        let source = |n: usize| VolumeSource { path: format!("/{n}").into(), is_read_only: n % 2 == 1 };
        let volumes = VolumeSources::default();
        volumes.set("data", source(0));
        std::thread::scope(|scope| {
            for n in 0..50 {
                let (volumes, task) = (volumes.clone(), &task);
                scope.spawn(move || {
                    for _ in 0..100 {
                        volumes.set("data", source(n));
                        volumes.set(&format!("of-{n}"), source(n));
                        let mut seen = volumes.mounts(task, |text| Ok(text.to_owned())).expect("it is known");
                        let of: usize = seen[0].source[1..].parse().expect("a number");
                        assert_eq!(seen[0].read_only, of % 2 == 1, "of one write only: {seen:?}");
                        seen.clear();
                    }
                });
            }
        });
        assert_eq!(volumes.mounts(&task, |text| Ok(text.to_owned())).expect("it is known").len(), 1);
        assert_eq!(volumes.0.lock().expect("no panic").len(), 51, "no write is lost");
    }

    #[test]
    fn mounts_are_interpolated_and_what_is_asked_for_twice_is_mounted_once() {
        let volumes = VolumeSources::default();
        volumes.set("data", VolumeSource { path: "/host".into(), is_read_only: false });
        let mounts = |mounts: serde_json::Value| {
            let task = json!({ "name": "t", "driver": "exec", "volumeMounts": mounts });
            let task: Task = serde_json::from_value(task).expect("a task");
            volumes.mounts(&task, |text| Ok(text.replace("${KIND}", "data").replace("${UP}", "..")))
        };
        let plain = json!({ "volume": "data", "destination": "/srv/data" });
        let named = json!({ "volume": "${KIND}", "destination": "/srv/${KIND}" });
        let reader = json!({ "volume": "data", "destination": "/srv/data", "readOnly": true });
        let wanted = BindMount { source: "/host".to_owned(), target: "/srv/data".to_owned(), read_only: false };
        let also = BindMount { read_only: true, ..wanted.clone() };
        assert_eq!(mounts(json!([plain, named, reader])), Ok(vec![wanted, also]));
        for (volume, destination, reason) in
            [("data", "/srv/${UP}/etc", "without .."), ("logs", "/srv", "volume logs is not mounted")]
        {
            let refused = mounts(json!([{ "volume": volume, "destination": destination }])).expect_err("refused");
            assert!(refused.contains(reason), "{refused}");
        }
    }
}
