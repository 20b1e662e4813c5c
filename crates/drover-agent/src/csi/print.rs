//! What a node tells of its CSI plugins.

use std::collections::BTreeMap;

use drover_api::client_node::{CsiAnswer, CsiInfo};

/// What a node says of its CSI plugins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CsiPrint {
    /// The plugins, by id.
    pub(crate) plugins: BTreeMap<String, CsiInfo>,
    /// Answers, by the name of the request.
    pub(crate) answers: BTreeMap<String, CsiAnswer>,
}
