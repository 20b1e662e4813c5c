//! Facts that come by and by. The first ones are gathered, so that a node registers once and not once for each of its
//! plugins.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::client_node::{DeviceGroup, DriverInfo, Fingerprint, OfferedVolume};

/// Who tells facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Manager {
    Devices,
    Drivers,
}

/// A fact. The last one of each name holds.
#[derive(Clone, Debug)]
pub(crate) enum Fact {
    /// A driver, by name.
    Driver(String, DriverInfo),
    /// All groups of a device plugin, by the plugin's name; none when it has gone.
    Devices(String, Vec<DeviceGroup>),
    /// The host volumes that were made at run time, by name; they stand before configured ones of the same name.
    Volumes(BTreeMap<String, OfferedVolume>),
    /// Metadata that was set at run time; an empty value hides the configured one.
    Meta(BTreeMap<String, String>),
    /// What of the agent itself does not work, by part.
    AgentProblems(BTreeMap<String, String>),
    /// A manager has told all that it knew at first.
    Reported(Manager),
}

/// What follows from a fact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FactChange {
    /// The node is not what it was.
    pub(crate) is_node_changed: bool,
    /// A driver whose health or description changed, with what there is to say.
    pub(crate) driver: Option<(String, DriverInfo)>,
}

/// The batch was closed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the first facts were gathered before")]
pub(crate) struct AlreadyClosed;

/// The node's facts.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    print: Fingerprint,
    /// The groups of each device plugin.
    devices: BTreeMap<String, Vec<DeviceGroup>>,
    /// The configured host volumes.
    fixed_volumes: BTreeMap<String, OfferedVolume>,
    /// Facts of the open batch.
    recorded: Vec<Fact>,
    missing: BTreeSet<Manager>,
    is_open: bool,
}

impl Batch {
    /// An open batch over what is known already, that waits for these managers.
    pub(crate) fn new(print: Fingerprint, managers: impl IntoIterator<Item = Manager>) -> Self {
        Self {
            fixed_volumes: print.host_volumes.clone(),
            print,
            devices: BTreeMap::new(),
            recorded: Vec::new(),
            missing: managers.into_iter().collect(),
            is_open: true,
        }
    }

    /// What the node is.
    pub(crate) fn print(&self) -> &Fingerprint {
        &self.print
    }

    /// Whether all managers have reported.
    pub(crate) fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Whether facts are still gathered.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Takes a fact in. While the batch is open it changes nothing.
    pub(crate) fn take(&mut self, fact: Fact) -> FactChange {
        if let Fact::Reported(manager) = fact {
            self.missing.remove(&manager);
            return FactChange::default();
        }
        if self.is_open {
            self.recorded.push(fact);
            return FactChange::default();
        }
        let before = self.print.clone();
        let driver = self.apply(fact);
        FactChange { is_node_changed: before != self.print, driver }
    }

    /// Applies all that was gathered, to one picture of the node. Returns whether that changed it.
    pub(crate) fn close(&mut self) -> Result<bool, AlreadyClosed> {
        if !std::mem::replace(&mut self.is_open, false) {
            return Err(AlreadyClosed);
        }
        let before = self.print.clone();
        for fact in std::mem::take(&mut self.recorded) {
            // Nothing is news to a node that has not spoken yet.
            drop(self.apply(fact));
        }
        Ok(before != self.print)
    }

    fn apply(&mut self, fact: Fact) -> Option<(String, DriverInfo)> {
        match fact {
            Fact::Driver(name, info) => return self.apply_driver(name, info),
            Fact::Devices(plugin, groups) => {
                self.devices.insert(plugin, groups);
                self.print.devices = self.devices.values().flatten().cloned().collect();
            }
            Fact::Volumes(dynamic) => {
                self.print.host_volumes = self.fixed_volumes.clone().into_iter().chain(dynamic).collect();
            }
            Fact::Meta(dynamic) => self.print.meta.dynamic = dynamic,
            Fact::AgentProblems(problems) => self.print.agent_problems = problems,
            Fact::Reported(_) => {}
        }
        None
    }

    fn apply_driver(&mut self, name: String, info: DriverInfo) -> Option<(String, DriverInfo)> {
        let attribute = format!("driver.{name}");
        if info.detected {
            self.print.attributes.insert(attribute, "1".to_owned());
        } else {
            self.print.attributes.remove(&attribute);
        }
        let known = self.print.drivers.insert(name.clone(), info.clone());
        let is_news = known.is_some_and(|known| {
            known.healthy != info.healthy || known.detected != info.detected || known.description != info.description
        });
        is_news.then_some((name, info))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn driver(healthy: bool, description: &str) -> DriverInfo {
        DriverInfo { detected: true, healthy, description: description.to_owned(), ..DriverInfo::default() }
    }

    fn batch() -> Batch {
        Batch::new(Fingerprint::default(), [Manager::Devices, Manager::Drivers])
    }

    #[test]
    fn a_004_what_comes_while_the_batch_is_open_is_one_change_of_the_node() {
        let mut batch = batch();
        let group = DeviceGroup { vendor: "acme".into(), ..DeviceGroup::default() };
        for fact in [
            Fact::Devices("file".into(), vec![group.clone()]),
            Fact::Driver("exec".into(), driver(false, "old")),
            Fact::Driver("exec".into(), driver(true, "")),
            Fact::Reported(Manager::Devices),
        ] {
            assert_eq!(batch.take(fact), FactChange::default());
        }
        assert!(!batch.is_complete());
        batch.take(Fact::Reported(Manager::Drivers));
        assert!(batch.is_complete());
        assert_eq!(batch.close(), Ok(true));
        let print = batch.print();
        assert_eq!(
            (&print.devices[..], print.drivers["exec"].healthy),
            (&[group][..], true),
            "the last of a name holds"
        );
        assert!(print.attributes["driver.exec"] == "1");
        assert_eq!(batch.close(), Err(AlreadyClosed));
    }

    #[test]
    fn a_006_after_the_batch_each_fact_changes_the_node_and_a_drivers_health_is_told() {
        let mut batch = batch();
        batch.take(Fact::Driver("exec".into(), driver(true, "")));
        assert_eq!(batch.close(), Ok(true));
        let change = batch.take(Fact::Driver("exec".into(), driver(false, "x")));
        let told = Some(("exec".to_owned(), driver(false, "x")));
        assert_eq!(change, FactChange { is_node_changed: true, driver: told });
        let same = batch.take(Fact::Driver("exec".into(), driver(false, "x")));
        assert_eq!(same, FactChange::default(), "what is known is no news");
        let gone = batch.take(Fact::Driver("exec".into(), DriverInfo::default()));
        assert!(gone.is_node_changed && !batch.print().attributes.contains_key("driver.exec"));
    }

    #[test]
    fn devices_of_one_plugin_do_not_push_out_anothers() {
        let mut batch = batch();
        assert_eq!(batch.close(), Ok(false));
        let group = |vendor: &str| vec![DeviceGroup { vendor: vendor.into(), ..DeviceGroup::default() }];
        batch.take(Fact::Devices("a".into(), group("one")));
        batch.take(Fact::Devices("b".into(), group("two")));
        assert_eq!(batch.print().devices.len(), 2);
        batch.take(Fact::Devices("a".into(), Vec::new()));
        assert_eq!(batch.print().devices, group("two"));
    }
}
