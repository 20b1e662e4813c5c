//! The drivers of a node, by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::client_node::DriverInfo;

use super::containerd::ContainerdState;
use super::driver::Driver;
use crate::watch;

/// The drivers of a node, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drivers {
    known: BTreeMap<&'static str, Arc<dyn Driver>>,
    /// Changes when what a driver needs begins or ceases to work.
    news: Option<watch::Receiver<ContainerdState>>,
}

impl Drivers {
    /// Adds a driver.
    pub(crate) fn add(&mut self, name: &'static str, driver: Arc<dyn Driver>) {
        self.known.insert(name, driver);
    }

    /// Has the table say when what a driver needs changes.
    pub(crate) fn watch(&mut self, news: watch::Receiver<ContainerdState>) {
        self.news = Some(news);
    }

    /// Waits until what a driver needs has changed since this was last asked.
    pub(crate) async fn changed(&mut self) {
        if let Some(news) = &mut self.news
            && news.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
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
