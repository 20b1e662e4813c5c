//! One event, written once for all who get it.

use serde_json::{Value, json};

use super::cause::Cause;
use super::topic::Topic;

/// One event: what it is found by, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    topic: Topic,
    /// Empty for what is in no namespace.
    namespace: String,
    key: String,
    filter_keys: Vec<String>,
    /// Its JSON, which lacks the index and what follows, until there is one.
    text: String,
}

/// By what an event is found, beside its topic and namespace.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys {
    /// The id of what it is about.
    pub(super) own: String,
    /// The ids of what that belongs to. Empty ones are left out: they are found by nothing.
    pub(super) more: Vec<String>,
}

impl Event {
    /// An event that has no index yet. `namespace` is empty for what is in none.
    pub(super) fn new((topic, cause): (Topic, Cause), namespace: &str, keys: Keys, payload: &Value) -> Self {
        let Keys { own: key, more: mut filter_keys } = keys;
        filter_keys.retain(|key| !key.is_empty());
        let mut text = json!({
            "Topic": topic.name(), "Type": cause.name(), "Key": key, "Namespace": namespace,
            "FilterKeys": filter_keys, "Payload": payload,
        })
        .to_string();
        // The brace comes back with the index.
        text.pop();
        Self { topic, namespace: namespace.to_owned(), key, filter_keys, text }
    }

    /// The same, with its index.
    pub(super) fn at(mut self, index: u64) -> Self {
        for part in [",\"Index\":", &index.to_string(), "}"] {
            self.text.push_str(part);
        }
        self.text.shrink_to_fit();
        self
    }

    /// What it is about.
    pub const fn topic(&self) -> Topic {
        self.topic
    }

    /// The namespace of what it is about; empty where that is in none.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Which object it is about: equal for events of the same one.
    pub(super) fn about(&self) -> (&'static str, String, String) {
        (self.topic.name(), self.namespace.clone(), self.key.clone())
    }

    /// Whether this is the id of what it is about, or of what that belongs to.
    pub(super) fn has_key(&self, key: &str) -> bool {
        self.key == key || self.filter_keys.iter().any(|it| it == key)
    }

    /// Its JSON.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// About how many bytes it holds.
    pub(super) fn n_bytes(&self) -> usize {
        let keys: usize = self.filter_keys.iter().map(String::len).sum();
        size_of::<Self>() + self.text.len() + self.key.len() + self.namespace.len() + keys
    }
}
