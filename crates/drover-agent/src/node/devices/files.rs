//! Device plugin `files`: special or plain files of the host, as the configuration lists them. A file that is missing
//! is ill.

use std::path::{Path, PathBuf};

use drover_api::allocation::AllocatedDevice;
use drover_api::client_node::{DeviceGroup, DeviceInstance};

use super::{DevicePlugin, Reservation};
use crate::config::FileDeviceConfig;

/// The plugin.
#[derive(Debug)]
pub(crate) struct FileDevices(Vec<FileDeviceConfig>);

impl FileDevices {
    /// Of these groups.
    pub(crate) fn new(groups: Vec<FileDeviceConfig>) -> Self {
        Self(groups)
    }
}

impl DevicePlugin for FileDevices {
    fn name(&self) -> &'static str {
        "files"
    }

    fn groups(&self) -> Result<Vec<DeviceGroup>, String> {
        let group = |found: &FileDeviceConfig| DeviceGroup {
            vendor: found.vendor.clone(),
            r#type: found.r#type.clone(),
            name: found.name.clone(),
            attributes: found.attributes.clone(),
            instances: found.paths.iter().map(|path| instance(path)).collect(),
        };
        Ok(self.0.iter().map(group).collect())
    }

    fn reserve(&self, device: &AllocatedDevice) -> Result<Reservation, String> {
        let nodes: Vec<PathBuf> = device.ids.iter().map(PathBuf::from).collect();
        if let Some(missing) = nodes.iter().find(|path| !path.exists()) {
            return Err(format!("device {} is not there any more", missing.display()));
        }
        Ok(Reservation { env: [(variable(&device.r#type), device.ids.join(","))].into(), nodes })
    }
}

fn instance(path: &Path) -> DeviceInstance {
    DeviceInstance { id: path.to_string_lossy().into_owned(), healthy: path.exists(), hw_locality: String::new() }
}

/// The variable that lists a task's devices of a type.
fn variable(r#type: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("NOMAD_DEVICE_{}", r#type.chars().map(plain).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_devices_and_missing_ones_are_ill() {
        let plugin = FileDevices::new(vec![FileDeviceConfig {
            vendor: "acme".into(),
            r#type: "random-source".into(),
            name: "r1".into(),
            paths: vec!["/dev/urandom".into(), "/dev/no-such-device".into()],
            attributes: [("rate".to_owned(), "1".to_owned())].into(),
        }]);
        let groups = plugin.groups().expect("groups");
        let health: Vec<bool> = groups[0].instances.iter().map(|instance| instance.healthy).collect();
        assert_eq!((health, groups[0].attributes["rate"].as_str()), (vec![true, false], "1"));
        let asked = |id: &str| AllocatedDevice {
            ids: vec![id.into()],
            r#type: "random-source".into(),
            ..AllocatedDevice::default()
        };
        let reserved = plugin.reserve(&asked("/dev/urandom")).expect("reserved");
        assert_eq!(reserved.env["NOMAD_DEVICE_RANDOM_SOURCE"], "/dev/urandom");
        let error = plugin.reserve(&asked("/dev/no-such-device")).expect_err("refused");
        assert!(error.contains("/dev/no-such-device"), "{error}");
    }
}
