//! The drivers of a node, by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::client_node::DriverInfo;

use super::driver::Driver;

/// The drivers of a node, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drivers {
    known: BTreeMap<&'static str, Arc<dyn Driver>>,
}

impl Drivers {
    /// Adds a driver.
    pub(crate) fn add(&mut self, name: &'static str, driver: Arc<dyn Driver>) {
        self.known.insert(name, driver);
    }

    /// The driver of this name.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<dyn Driver>> {
        self.known.get(name).cloned()
    }

    /// The driver table of the node.
    pub(crate) fn fingerprint(&self) -> BTreeMap<String, DriverInfo> {
        self.known.iter().map(|(name, driver)| ((*name).to_owned(), driver.fingerprint())).collect()
    }
}
