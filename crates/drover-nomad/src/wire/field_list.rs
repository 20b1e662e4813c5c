//! Objects that are written as they are made. Lists have thousands of them, and what a `Value` costs beside its text, a
//! table and copies of its keys and texts, is most of the work.

use serde::ser::{Serialize, SerializeMap as _, Serializer};

/// An object with keys that are known, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldList<V>(pub(crate) Vec<(&'static str, V)>);

impl<V: Serialize> Serialize for FieldList<V> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut object = to.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            object.serialize_entry(key, value)?;
        }
        object.end()
    }
}
