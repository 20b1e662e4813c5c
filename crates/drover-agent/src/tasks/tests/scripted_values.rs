//! What gives out values, as a test says.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::world::Node;
use crate::values::{Followed, ValueRequest, ValueState, Values};

/// Objects by name, whose state the test says.
#[derive(Debug, Default)]
pub(super) struct ScriptedValues(Mutex<BTreeMap<String, watch::Sender<ValueState>>>);

impl ScriptedValues {
    /// A node whose tasks get these values.
    pub(super) fn on_a_node() -> (Node, Arc<Self>) {
        let values = Arc::new(Self::default());
        let mut node = Node::new();
        node.values = Arc::<Self>::clone(&values);
        (node, values)
    }

    pub(super) fn set(&self, name: &str, state: ValueState) {
        self.of(name).send_replace(state);
    }

    fn of(&self, name: &str) -> watch::Sender<ValueState> {
        let mut all = self.0.lock().expect("no panic");
        let waiting = || watch::Sender::new(ValueState::Waiting("the gateway does not answer".to_owned()));
        all.entry(name.to_owned()).or_insert_with(waiting).clone()
    }

    /// The object has one key.
    pub(super) fn there(&self, name: &str, key: &str, value: &str) {
        let keys = BTreeMap::from([(key.to_owned(), value.as_bytes().to_vec())]);
        self.set(name, ValueState::There(Arc::new(keys)));
    }
}

impl Values for ScriptedValues {
    fn follow(&self, request: ValueRequest) -> Followed {
        Followed::of(self.of(&request.object.name).subscribe())
    }
}
