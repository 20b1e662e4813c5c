//! The one clock of the shells, so that tests and the simulator can give them another one.

mod clock;

pub use clock::{Clock, SharedClock, SystemClock, sleep_until};
