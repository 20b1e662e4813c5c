//! What a node tells of itself, cut to what the schema takes: a plugin or a file that says too much must not keep its
//! node from being registered.
//!
//! Input: a fingerprint as it was found. Output: the same within bounds, and the fields that were cut. Names have no
//! control characters. Ids are never cut, which would make one of another: what has such an id is left out.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::client_node::{DeviceGroup, DriverInfo, Fingerprint};

const MAX_ATTRIBUTES: usize = 512;
const MAX_META: usize = 128;
const MAX_DRIVERS: usize = 32;
const MAX_DEVICE_GROUPS: usize = 64;
const MAX_INSTANCES: usize = 256;
/// Of all groups: more would not fit into one object.
const MAX_ALL_INSTANCES: usize = 2048;
const MAX_INSTANCE_ID: usize = 128;
const MAX_HOST_VOLUMES: usize = 128;
const MAX_HOST_NETWORKS: usize = 64;
const MAX_PROBLEMS: usize = 8;
const MAX_NETWORK_MODES: usize = 64;
/// Attributes of a driver or of a group of devices.
const MAX_INNER_ATTRIBUTES: usize = 64;
const MAX_KEY: usize = 256;
const MAX_TEXT: usize = 1024;
const MAX_PATH: usize = 4096;
/// Of the whole as JSON: an object has at most 1.5 MiB, and there is more in it than this.
const MAX_BYTES: usize = 1024 * 1024;

/// Cuts what is too long, and names the fields in which it did.
pub(crate) fn cut(print: &mut Fingerprint) -> BTreeSet<&'static str> {
    let mut cut = Cut(BTreeSet::new());
    cut.map("attributes", &mut print.attributes, MAX_ATTRIBUTES);
    cut.map("meta.static", &mut print.meta.static_meta, MAX_META);
    cut.map("meta.dynamic", &mut print.meta.dynamic, MAX_META);
    cut.map("agentProblems", &mut print.agent_problems, MAX_PROBLEMS);
    cut.keys("drivers", &mut print.drivers, MAX_DRIVERS);
    for driver in print.drivers.values_mut() {
        cut.driver(driver);
    }
    cut.devices(&mut print.devices);
    cut.keys("hostVolumes", &mut print.host_volumes, MAX_HOST_VOLUMES);
    let all = print.host_volumes.len();
    print.host_volumes.retain(|_, volume| volume.path.len() <= MAX_PATH && is_plain(&volume.path));
    cut.note_if("hostVolumes", print.host_volumes.len() < all);
    cut.note_if("hostNetworks", print.host_networks.len() > MAX_HOST_NETWORKS);
    print.host_networks.truncate(MAX_HOST_NETWORKS);
    cut.note_if("networkModes", print.network_modes.len() > MAX_NETWORK_MODES);
    print.network_modes.truncate(MAX_NETWORK_MODES);
    for plugin in print.csi.values_mut() {
        cut.text("csi", &mut plugin.description, MAX_TEXT);
    }
    cut.until_it_fits(print);
    cut.0
}

/// The fields that were cut so far.
#[derive(Debug)]
struct Cut(BTreeSet<&'static str>);

impl Cut {
    fn note_if(&mut self, field: &'static str, is_cut: bool) {
        if is_cut {
            self.0.insert(field);
        }
    }

    fn text(&mut self, field: &'static str, text: &mut String, max: usize) {
        if text.len() <= max && is_plain(text) {
            return;
        }
        self.0.insert(field);
        text.retain(|letter| !letter.is_control());
        text.truncate(text.floor_char_boundary(max));
    }

    /// Keeps the first entries whose names are names.
    fn keys<T>(&mut self, field: &'static str, map: &mut BTreeMap<String, T>, max: usize) {
        let (all, mut kept) = (map.len(), 0);
        map.retain(|key, _| {
            let is_kept = kept < max && key.len() <= MAX_KEY && is_plain(key);
            kept += usize::from(is_kept);
            is_kept
        });
        self.note_if(field, map.len() < all);
    }

    fn map(&mut self, field: &'static str, map: &mut BTreeMap<String, String>, max: usize) {
        self.keys(field, map, max);
        for value in map.values_mut() {
            self.text(field, value, MAX_TEXT);
        }
    }

    fn driver(&mut self, driver: &mut DriverInfo) {
        self.text("drivers", &mut driver.description, MAX_TEXT);
        self.map("drivers", &mut driver.attributes, MAX_INNER_ATTRIBUTES);
    }

    fn devices(&mut self, groups: &mut Vec<DeviceGroup>) {
        self.note_if("devices", groups.len() > MAX_DEVICE_GROUPS);
        groups.truncate(MAX_DEVICE_GROUPS);
        let mut left = MAX_ALL_INSTANCES;
        for group in groups {
            for name in [&mut group.vendor, &mut group.r#type, &mut group.name] {
                self.text("devices", name, MAX_KEY);
            }
            self.map("devices", &mut group.attributes, MAX_INNER_ATTRIBUTES);
            let all = group.instances.len();
            group.instances.retain(|it| !it.id.is_empty() && it.id.len() <= MAX_INSTANCE_ID && is_plain(&it.id));
            group.instances.truncate(MAX_INSTANCES.min(left));
            left -= group.instances.len();
            self.note_if("devices", group.instances.len() < all);
        }
    }
}

impl Cut {
    /// Gives up what there can be most of until the whole fits.
    fn until_it_fits(&mut self, print: &mut Fingerprint) {
        let is_too_large = |print: &Fingerprint| serde_json::to_vec(print).is_ok_and(|bytes| bytes.len() > MAX_BYTES);
        while is_too_large(print) && print.devices.pop().is_some() {
            self.0.insert("devices");
        }
        if is_too_large(print) {
            self.0.insert("drivers");
            print.drivers.values_mut().for_each(|driver| driver.attributes.clear());
        }
    }
}

fn is_plain(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use drover_api::client_node::DeviceInstance;

    use super::*;

    #[test]
    fn must_survive_x_035_a_node_that_tells_too_much() {
        let long = |n: usize| (format!("k{n:05}"), "ä\u{7}".repeat(2000));
        let instance =
            |n: usize| DeviceInstance { id: format!("/dev/{n}"), healthy: true, ..DeviceInstance::default() };
        let group = |n: usize| DeviceGroup {
            vendor: "a\u{1b}[31m".into(),
            r#type: "gpu".into(),
            name: format!("model-{n}"),
            attributes: (0..100).map(long).collect(),
            instances: (0..1000).map(instance).collect(),
        };
        let mut print = Fingerprint {
            attributes: (0..2000).map(long).chain([("a\u{0}b".to_owned(), "x".to_owned())]).collect(),
            devices: (0..100).map(group).collect(),
            drivers: [("exec".to_owned(), DriverInfo { description: "x".repeat(5000), ..DriverInfo::default() })]
                .into(),
            ..Fingerprint::default()
        };
        print.devices[0].instances[0].id = "x".repeat(129);
        assert_eq!(cut(&mut print).into_iter().collect::<Vec<_>>(), ["attributes", "devices", "drivers"]);
        assert_eq!(print.attributes.len(), MAX_ATTRIBUTES);
        assert!(print.devices.len() <= MAX_DEVICE_GROUPS && !print.devices.is_empty());
        assert!(print.devices.iter().map(|group| group.instances.len()).sum::<usize>() <= MAX_ALL_INSTANCES);
        assert!(serde_json::to_vec(&print).expect("JSON").len() <= MAX_BYTES);
        assert_eq!((print.devices[0].vendor.as_str(), print.devices[0].instances[0].id.as_str()), ("a[31m", "/dev/1"));
        assert!(print.drivers["exec"].description.len() == MAX_TEXT && !print.attributes.contains_key("a\u{0}b"));
        assert_eq!(cut(&mut print), BTreeSet::new(), "what is within bounds stays as it is");
    }
}
