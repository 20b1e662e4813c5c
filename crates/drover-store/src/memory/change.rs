//! A change of one object, as the store keeps and tells it.

use std::sync::Arc;

use super::object::Stored;

/// A change of one object.
#[derive(Clone, Debug)]
pub struct StoredChange {
    /// Its state before; none when it is new. Of one that goes it is the last state, with the version of its end.
    pub before: Option<Arc<Stored>>,
    /// The state before the end of one that goes.
    pub(crate) stood: Option<Arc<Stored>>,
    /// Its state after; none when it is gone.
    pub after: Option<Arc<Stored>>,
    /// The version that the store has since.
    pub version: u64,
}

impl StoredChange {
    /// The newest state.
    ///
    /// # Panics
    /// Never: a change has a state before or after.
    pub fn object(&self) -> &Arc<Stored> {
        self.after.as_ref().or(self.before.as_ref()).expect("a change has a state before or after")
    }
}
