//! What gives out values, as a test says.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use super::world::Node;
use crate::values::{Followed, GivenValues, ValueRequest, ValueState, Values};

/// Objects by name, whose state the test says.
#[derive(Debug, Default)]
pub(super) struct ScriptedValues {
    objects: Mutex<BTreeMap<String, watch::Sender<ValueState>>>,
    /// The versions that requests say are in use.
    held: Mutex<Vec<Option<String>>>,
}

/// Values of which the gateway says no version.
pub(super) fn with_keys(keys: BTreeMap<String, Vec<u8>>) -> ValueState {
    ValueState::There(Arc::new(GivenValues { keys, ..GivenValues::default() }))
}

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

    /// The versions that the requests since the last call said are in use.
    pub(super) fn held(&self) -> Vec<Option<String>> {
        std::mem::take(&mut *self.held.lock().expect("no panic"))
    }

    fn of(&self, name: &str) -> watch::Sender<ValueState> {
        let mut all = self.objects.lock().expect("no panic");
        let waiting = || watch::Sender::new(ValueState::Waiting("the gateway does not answer".to_owned()));
        all.entry(name.to_owned()).or_insert_with(waiting).clone()
    }

    /// The object has one key.
    pub(super) fn there(&self, name: &str, key: &str, value: &str) {
        let keys = BTreeMap::from([(key.to_owned(), value.as_bytes().to_vec())]);
        self.set(name, with_keys(keys));
    }
}

impl Values for ScriptedValues {
    fn follow(&self, request: ValueRequest) -> Followed {
        self.held.lock().expect("no panic").push(request.holds);
        Followed::of(self.of(&request.object.name).subscribe())
    }
}
