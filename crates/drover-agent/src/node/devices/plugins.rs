//! The plugins of devices: what they tell is checked, and what a task needs is asked of the one that has its device.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use drover_api::allocation::AllocatedDevice;
use drover_api::client_node::DeviceGroup;
use tokio::sync::mpsc;

use crate::node::facts::{Fact, Manager};

/// How often plugins are asked.
const EVERY: Duration = Duration::from_secs(30);

/// What a task needs to use its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reservation {
    /// Variables of its environment.
    pub(crate) env: BTreeMap<String, String>,
    /// Files of the host that it may open, at the same place.
    pub(crate) nodes: Vec<PathBuf>,
}

/// One source of devices.
pub(crate) trait DevicePlugin: Debug + Send + Sync {
    /// Its name, for people.
    fn name(&self) -> &str;
    /// What there is now.
    fn groups(&self) -> Result<Vec<DeviceGroup>, String>;
    /// What a task needs for these instances, all of which the plugin has.
    fn reserve(&self, device: &AllocatedDevice) -> Result<Reservation, String>;
}

/// The node's plugins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Devices(Arc<Vec<Arc<dyn DevicePlugin>>>);

impl Devices {
    /// These plugins.
    pub(crate) fn new(plugins: Vec<Arc<dyn DevicePlugin>>) -> Self {
        Self(Arc::new(plugins))
    }

    /// What a task needs for all its devices. Those of one group are one plugin's.
    pub(crate) fn reserve(&self, devices: &[AllocatedDevice]) -> Result<Reservation, String> {
        let mut all = Reservation::default();
        for device in devices {
            let Some(plugin) = self.0.iter().find(|plugin| knows(&***plugin, device)) else {
                let AllocatedDevice { vendor, r#type, name, ids } = device;
                let ids = ids.join(", ");
                return Err(format!("unknown device {vendor}/{type}/{name} {ids}: no plugin of this node has it now"));
            };
            let Reservation { env, nodes } = plugin.reserve(device)?;
            all.env.extend(env);
            all.nodes.extend(nodes);
        }
        Ok(all)
    }

    /// Asks the plugins again and again. What one of them tells wrongly is not used at all.
    pub(crate) async fn watch(self, facts: mpsc::Sender<Fact>) {
        let mut is_first = true;
        loop {
            for plugin in self.0.iter() {
                let groups = plugin.groups().and_then(checked).unwrap_or_else(|reason| {
                    tracing::warn!(plugin = plugin.name(), reason, "its devices are not offered");
                    Vec::new()
                });
                if facts.send(Fact::Devices(plugin.name().to_owned(), groups)).await.is_err() {
                    return;
                }
            }
            if std::mem::take(&mut is_first) && facts.send(Fact::Reported(Manager::Devices)).await.is_err() {
                return;
            }
            tokio::time::sleep(EVERY).await;
        }
    }
}

fn knows(plugin: &dyn DevicePlugin, device: &AllocatedDevice) -> bool {
    let Ok(groups) = plugin.groups().and_then(checked) else { return false };
    let same = |group: &&DeviceGroup| {
        (&group.vendor, &group.r#type, &group.name) == (&device.vendor, &device.r#type, &device.name)
    };
    groups
        .iter()
        .find(same)
        .is_some_and(|group| device.ids.iter().all(|id| group.instances.iter().any(|instance| instance.id == *id)))
}

/// One wrong group makes the whole answer worthless.
fn checked(groups: Vec<DeviceGroup>) -> Result<Vec<DeviceGroup>, String> {
    for group in &groups {
        let name = format!("{}/{}/{}", group.vendor, group.r#type, group.name);
        if [&group.vendor, &group.r#type, &group.name].iter().any(|part| part.is_empty()) {
            return Err(format!("device group {name:?} lacks a vendor, a type or a name"));
        }
        if group.instances.is_empty() {
            return Err(format!("device group {name} has no instance"));
        }
        let ids: BTreeSet<&String> = group.instances.iter().map(|instance| &instance.id).collect();
        if ids.len() != group.instances.len() || ids.iter().any(|id| id.is_empty()) {
            return Err(format!("device group {name} has an instance without an id, or two with one id"));
        }
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_api::client_node::DeviceInstance;

    #[derive(Debug)]
    struct Fixed(Result<Vec<DeviceGroup>, String>);

    impl DevicePlugin for Fixed {
        fn name(&self) -> &'static str {
            "fixed"
        }

        fn groups(&self) -> Result<Vec<DeviceGroup>, String> {
            self.0.clone()
        }

        fn reserve(&self, device: &AllocatedDevice) -> Result<Reservation, String> {
            let env = [("IDS".to_owned(), device.ids.join(","))].into();
            Ok(Reservation { env, nodes: device.ids.iter().map(PathBuf::from).collect() })
        }
    }

    fn group(ids: &[&str]) -> DeviceGroup {
        let instance = |id: &&str| DeviceInstance { id: (*id).to_owned(), healthy: true, ..DeviceInstance::default() };
        DeviceGroup {
            vendor: "acme".into(),
            r#type: "tpu".into(),
            name: "t1".into(),
            instances: ids.iter().map(instance).collect(),
            ..DeviceGroup::default()
        }
    }

    fn asked(ids: &[&str]) -> AllocatedDevice {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        AllocatedDevice { vendor: "acme".into(), r#type: "tpu".into(), name: "t1".into(), ids }
    }

    fn devices(groups: Result<Vec<DeviceGroup>, String>) -> Devices {
        Devices::new(vec![Arc::new(Fixed(groups))])
    }

    #[test]
    fn all_instances_of_a_group_must_be_one_plugins() {
        let found = devices(Ok(vec![group(&["a", "b"])]));
        let reserved = found.reserve(&[asked(&["a", "b"])]).expect("known");
        assert_eq!((reserved.env["IDS"].as_str(), reserved.nodes.len()), ("a,b", 2));
        let error = found.reserve(&[asked(&["a", "c"])]).expect_err("refused");
        assert!(error.contains("unknown device acme/tpu/t1 a, c"), "{error}");
        let gone = devices(Err("gone".into())).reserve(&[asked(&["a"])]).expect_err("refused");
        assert!(gone.contains("unknown device"), "{gone}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wrong_group_hides_all_of_its_plugins_and_a_plugin_that_fails_offers_nothing() {
        for groups in [
            Ok(vec![group(&["a"]), group(&[])]),
            Ok(vec![group(&["a", "a"])]),
            Ok(vec![DeviceGroup { vendor: String::new(), ..group(&["a"]) }]),
            Err("it broke".to_owned()),
        ] {
            let (facts, mut told) = mpsc::channel(8);
            let mut tasks = tokio::task::JoinSet::new();
            tasks.spawn(devices(groups).watch(facts));
            assert!(matches!(told.recv().await, Some(Fact::Devices(_, groups)) if groups.is_empty()));
            assert!(matches!(told.recv().await, Some(Fact::Reported(Manager::Devices))));
        }
    }
}
