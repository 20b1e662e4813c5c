//! The one clock of the shells, so that tests and the simulator can give them another one.

mod backoff;
mod clock;

pub use backoff::Backoff;
pub use clock::{Clock, SharedClock, SystemClock, sleep_until};
