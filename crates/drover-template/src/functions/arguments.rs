//! Arguments as functions read them.

use std::rc::Rc;

use crate::value::{Bytes, Value};

/// An argument whose type the table has checked.
pub(super) fn argument(given: &[Value], index: usize) -> Bytes {
    given.get(index).and_then(Value::as_text).cloned().unwrap_or_else(|| Rc::from(&b""[..]))
}
