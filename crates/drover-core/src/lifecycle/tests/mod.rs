//! The lifecycle's tables, over every combination of what they name.

mod restarts;
mod states;
