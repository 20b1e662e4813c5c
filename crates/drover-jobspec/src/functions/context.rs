//! What functions may use beside their arguments, and what they return.

use crate::evaluate::Budget;
use crate::inputs::Files;
use crate::value::Value;

/// What functions may use beside their arguments.
pub(crate) struct Context<'a> {
    pub(crate) files: Option<&'a dyn Files>,
    pub(crate) budget: &'a Budget,
}

/// Why there is no value; the caller adds the function's name and place.
pub(super) type Outcome = Result<Value, String>;
